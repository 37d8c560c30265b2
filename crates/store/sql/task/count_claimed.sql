-- How many tasks a claim call already has, from a try whose answer was lost.
SELECT count(*) FROM task_state
WHERE claimed_by = $1::text AND claim_id = $2::uuid AND finished_at IS NULL
