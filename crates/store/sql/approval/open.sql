-- A question that somebody waits for: a task that is parked in the same transaction, or whoever
-- wants to replay one.
INSERT INTO approval (id, task_id, gate, expires_at, created_at, kind, action, arguments, digest,
                      occurrence, required, requested_by, request)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
