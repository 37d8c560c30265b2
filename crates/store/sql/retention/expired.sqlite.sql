-- Finished tasks that a retention rule covers: $1 is the latest end that is old enough. A task that
-- a person has still to look at stays, and the task of the newest transition, so that its place in
-- the log is never given out again. So does one that others repeat, or repeat with it and have not
-- ended: what it ran must be known to them.
SELECT id FROM task_state
WHERE profile = 'inference' AND finished_at IS NOT NULL AND finished_at <= $1
  AND id <> (
      SELECT task_id FROM task_history WHERE seq = (SELECT max(seq) FROM task_history))
  AND coalesce((SELECT closed_at IS NOT NULL FROM trouble WHERE task_id = task_state.id), TRUE)
  AND (SELECT 1 FROM task_spec r WHERE r.replay_of = task_state.id LIMIT 1) IS NULL
  AND (SELECT 1 FROM task_spec mine
       JOIN task_spec r ON r.replay_of = mine.replay_of
       JOIN task_state other ON other.id = r.id
       WHERE mine.id = task_state.id AND other.finished_at IS NULL LIMIT 1) IS NULL
ORDER BY finished_at
LIMIT $2
