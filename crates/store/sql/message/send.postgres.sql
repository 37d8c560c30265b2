-- A message into its inbox, and what the audit tells of it. The id or the key of an earlier one
-- changes nothing, and nothing is told.
WITH sent AS (
    INSERT INTO message (id, from_agent, to_agent, type, priority, payload, correlation_id,
        idempotency_key, request_digest, sent_by, redelivery_of, status, created_at, due_at,
        expires_at, finished_at)
    VALUES ($1::uuid, $2::text, $3::text, $4::text, $5::integer, $6::jsonb, $7::text, $8::text,
            $9::text, $10::text, $11::uuid, $12::message_status, $13::timestamptz,
            $13::timestamptz, $14::timestamptz, $15::timestamptz)
    ON CONFLICT DO NOTHING
    RETURNING {message_returned}),
told AS (
    INSERT INTO audit (at, actor, event, detail)
    SELECT $13, $10, 'message_sent', $16::jsonb FROM sent)
SELECT * FROM sent
