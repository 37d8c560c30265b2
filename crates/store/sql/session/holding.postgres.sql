-- Those of these sessions that hold something.
SELECT DISTINCT claimed_by FROM task_state
WHERE claimed_by = ANY ($1::text[]) AND finished_at IS NULL AND lease_id IS NOT NULL
