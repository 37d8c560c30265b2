-- A message into its inbox. There is one writer, which has just looked for an earlier one; the
-- audit is told by a statement of its own. $16 is for PostgreSQL.
INSERT INTO message (id, from_agent, to_agent, type, priority, payload, correlation_id,
    idempotency_key, request_digest, sent_by, redelivery_of, status, created_at, due_at, expires_at,
    finished_at)
SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $13, $14, $15
WHERE $16 IS NOT NULL
RETURNING {message_returned}
