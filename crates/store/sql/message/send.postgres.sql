-- A message into its inbox, and what the audit tells of it. The id or the key of an earlier one
-- changes nothing, and nothing is told.
-- A handler that waits ($17 is its lease) gets it as it is written, if nothing lies before it: one
-- row instead of two versions of it. Of an agent that converses ($20) nobody may hold a message,
-- and a statement before this one has locked its row of inbox for this transaction.
WITH way AS MATERIALIZED (
    SELECT $17::uuid IS NOT NULL
        AND NOT EXISTS (
            SELECT 1 FROM message h
            WHERE h.to_agent = $3::text AND h.status = 'pending' AND h.due_at <= $13::timestamptz
              AND (h.expires_at IS NULL OR h.expires_at > $13))
        AND (NOT $20::boolean
             OR NOT EXISTS (
                    SELECT 1 FROM message d WHERE d.to_agent = $3 AND d.status = 'delivered')
                AND EXISTS (
                    SELECT 1 FROM inbox i
                    WHERE i.agent = $3 AND i.xmax = pg_current_xact_id()::xid)) AS is_free),
sent AS (
    INSERT INTO message (id, from_agent, to_agent, type, priority, payload, correlation_id,
        idempotency_key, request_digest, sent_by, redelivery_of, status, created_at, due_at,
        expires_at, finished_at, deliveries, lease_id, lease_expires_at, handled_by, delivered_at,
        converses)
    SELECT $1::uuid, $2::text, $3, $4::text, $5::integer, $6::jsonb, $7::text, $8::text,
        $9::text, $10::text, $11::uuid,
        CASE WHEN is_free THEN 'delivered' ELSE $12::message_status END, $13, $13,
        $14::timestamptz, $15::timestamptz, is_free::integer, CASE WHEN is_free THEN $17 END,
        CASE WHEN is_free THEN $18::timestamptz END, CASE WHEN is_free THEN $19::text END,
        CASE WHEN is_free THEN $13 END, is_free AND $20
    FROM way
    ON CONFLICT DO NOTHING
    RETURNING {message_returned}),
told AS (
    INSERT INTO audit (at, actor, event, detail)
    SELECT $13, $10, 'message_sent', $16::jsonb FROM sent)
SELECT * FROM sent
