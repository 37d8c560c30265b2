-- The question a task waits for; the task is parked in the same transaction.
INSERT INTO approval (id, task_id, gate, expires_at, created_at)
VALUES ($1, $2, $3, $4, $5)
