-- The leases that a session holds. Those that nobody renews come first, so that whoever names its
-- leases in several heartbeats is told soon of one that it does not know.
SELECT lease_id, id FROM task_state
WHERE claimed_by = $1::text AND finished_at IS NULL AND lease_id IS NOT NULL
ORDER BY lease_expires_at NULLS FIRST, order_key, id
