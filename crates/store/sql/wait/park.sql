-- For what the task waits; it is parked in the same transaction.
INSERT INTO wait (task_id, kind, step_id, lease_id, wake_at, signal, key, child_id, created_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
