-- A message into its inbox, in one flight: by a way that was found open before, which holds as
-- long as the registry is what it was then ($14). Otherwise, and for the id or the key of an
-- earlier one, nothing is written, and nothing is told.
-- A handler that waits ($15 is its lease) gets it as it is written, if nothing lies before it, and
-- if an agent that converses ($18) has no conversation: the function takes that lock and looks
-- then, so that this is the only statement of its transaction. The clock is read here.
WITH clock AS MATERIALIZED (
    SELECT coalesce($12::timestamptz, date_trunc('milliseconds', clock_timestamp())) AS now
    WHERE (SELECT version FROM registry) = $14::bigint),
way AS MATERIALIZED (
    SELECT clock.now, CASE
        WHEN $15::uuid IS NULL THEN FALSE
        WHEN $18::boolean THEN windlass_may_converse($3::text, clock.now)
        ELSE NOT EXISTS (
            SELECT 1 FROM message h
            WHERE h.to_agent = $3 AND h.status = 'pending' AND h.due_at <= clock.now
              AND (h.expires_at IS NULL OR h.expires_at > clock.now))
        END AS is_free
    FROM clock),
sent AS (
    INSERT INTO message (id, from_agent, to_agent, type, priority, payload, correlation_id,
        idempotency_key, request_digest, sent_by, redelivery_of, status, created_at, due_at,
        expires_at, deliveries, lease_id, lease_expires_at, handled_by, delivered_at, converses)
    SELECT $1::uuid, $2::text, $3, $4::text, $5::integer, $6::jsonb, $7::text, $8::text,
        $9::text, $10::text, $11::uuid,
        CASE WHEN is_free THEN 'delivered' ELSE 'pending' END::message_status, now, now,
        now + $13::bigint * interval '1 ms', is_free::integer, CASE WHEN is_free THEN $15 END,
        CASE WHEN is_free THEN now + $16::bigint * interval '1 ms' END,
        CASE WHEN is_free THEN $17::text END, CASE WHEN is_free THEN now END, is_free AND $18
    FROM way
    ON CONFLICT DO NOTHING
    RETURNING {message_returned}),
told AS (
    INSERT INTO audit (at, actor, event, detail)
    SELECT sent.created_at, $10, 'message_sent', $19::jsonb FROM sent)
SELECT * FROM sent
