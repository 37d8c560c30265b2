-- Those of these sessions that hold something.
SELECT DISTINCT claimed_by FROM task_state
WHERE claimed_by IN (SELECT value FROM json_each($1)) AND finished_at IS NULL
  AND lease_id IS NOT NULL
