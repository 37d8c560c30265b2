-- How many tasks are in a worker's hands.
SELECT status, count(*) FROM task_state
WHERE claimed_by IS NOT NULL AND finished_at IS NULL GROUP BY status
