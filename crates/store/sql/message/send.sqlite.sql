-- A message into its inbox. There is one writer, which has just looked for an earlier one; the
-- audit is told by a statement of its own. $16 is for PostgreSQL.
-- A handler that waits ($17 is its lease) gets it as it is written, if nothing lies before it, and
-- if an agent that converses ($20) has nothing in anybody's hands.
WITH way AS MATERIALIZED (
    SELECT $17 IS NOT NULL
        AND NOT EXISTS (
            SELECT 1 FROM message h
            WHERE h.to_agent = $3 AND h.status = 'pending' AND h.due_at <= $13
              AND (h.expires_at IS NULL OR h.expires_at > $13))
        AND NOT ($20 AND EXISTS (
            SELECT 1 FROM message d WHERE d.to_agent = $3 AND d.status = 'delivered')) AS is_free)
INSERT INTO message (id, from_agent, to_agent, type, priority, payload, correlation_id,
    idempotency_key, request_digest, sent_by, redelivery_of, status, created_at, due_at, expires_at,
    finished_at, deliveries, lease_id, lease_expires_at, handled_by, delivered_at, converses)
SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11,
    CASE WHEN is_free THEN 'delivered' ELSE $12 END, $13, $13, $14, $15, is_free,
    CASE WHEN is_free THEN $17 END, CASE WHEN is_free THEN $18 END,
    CASE WHEN is_free THEN $19 END, CASE WHEN is_free THEN $13 END, is_free AND $20
FROM way
WHERE $16 IS NOT NULL
RETURNING {message_returned}
