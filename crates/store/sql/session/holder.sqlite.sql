-- The session that holds a task, and how long its leases are. Whoever holds it may be no session.
SELECT h.id, h.lease_ms FROM task_state s JOIN session h ON h.id = s.claimed_by
WHERE s.id = $1
