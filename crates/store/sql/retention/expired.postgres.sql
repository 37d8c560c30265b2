-- Finished tasks that a retention rule covers: $1 is the latest end that is old enough.
SELECT id FROM task_state
WHERE profile = 'inference' AND finished_at IS NOT NULL AND finished_at <= $1
ORDER BY finished_at
LIMIT $2
FOR UPDATE SKIP LOCKED
