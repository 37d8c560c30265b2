-- Keeps a signal until a wait takes it; a repeated one is there already.
INSERT INTO signal (id, name, task_id, key, payload, request_digest, sent_by, created_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT (id) DO NOTHING
RETURNING id
