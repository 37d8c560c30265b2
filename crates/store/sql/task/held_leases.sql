-- The leases that a session holds.
SELECT lease_id FROM task_state
WHERE claimed_by = $1::text AND finished_at IS NULL AND lease_id IS NOT NULL
