-- Finished tasks that a retention rule covers: $1 is the latest end that is old enough. A task that
-- a person has still to look at stays.
SELECT id FROM task_state
WHERE profile = 'inference' AND finished_at IS NOT NULL AND finished_at <= $1
  AND NOT EXISTS (SELECT 1 FROM trouble WHERE task_id = task_state.id AND closed_at IS NULL)
ORDER BY finished_at
LIMIT $2
FOR UPDATE SKIP LOCKED
