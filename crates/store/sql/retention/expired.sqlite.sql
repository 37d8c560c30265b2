-- Finished tasks that a retention rule covers: $1 is the latest end that is old enough. A task that
-- a person has still to look at stays, and the task of the newest transition, so that its place in
-- the log is never given out again.
SELECT id FROM task_state
WHERE profile = 'inference' AND finished_at IS NOT NULL AND finished_at <= $1
  AND id <> (
      SELECT task_id FROM task_history WHERE seq = (SELECT max(seq) FROM task_history))
  AND coalesce((SELECT closed_at IS NOT NULL FROM trouble WHERE task_id = task_state.id), TRUE)
ORDER BY finished_at
LIMIT $2
