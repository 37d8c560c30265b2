-- Finished tasks that a retention rule covers: $1 is the latest end that is old enough. A task that
-- a person has still to look at stays. So does one that others repeat, or repeat with it and have
-- not ended: what it ran must be known to them, and their family is locked by its root.
SELECT id FROM task_state
WHERE profile = 'inference' AND finished_at IS NOT NULL AND finished_at <= $1
  AND coalesce((SELECT closed_at IS NOT NULL FROM trouble WHERE task_id = task_state.id), TRUE)
  AND (SELECT 1 FROM task_spec r WHERE r.replay_of = task_state.id LIMIT 1) IS NULL
  AND (SELECT 1 FROM task_spec mine
       JOIN task_spec r ON r.replay_of = mine.replay_of
       JOIN task_state other ON other.id = r.id
       WHERE mine.id = task_state.id AND other.finished_at IS NULL LIMIT 1) IS NULL
ORDER BY finished_at
LIMIT $2
FOR UPDATE SKIP LOCKED
