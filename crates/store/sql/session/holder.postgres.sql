-- The session that holds a task, and how long its leases are. Whoever holds it may be no session:
-- the guard keeps such a name from being read as an id.
SELECT h.id, h.lease_ms FROM task_state s
JOIN session h ON h.id = CASE
    WHEN s.claimed_by ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' THEN s.claimed_by::uuid END
WHERE s.id = $1::uuid
