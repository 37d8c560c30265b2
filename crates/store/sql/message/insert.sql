-- A message into its inbox, or one that is dead from the beginning. The id or the key of an earlier
-- one changes nothing.
INSERT INTO message (id, from_agent, to_agent, type, priority, payload, correlation_id,
    idempotency_key, request_digest, sent_by, redelivery_of, status, created_at, due_at, expires_at,
    finished_at)
VALUES ($1::uuid, $2::text, $3::text, $4::text, $5::integer, $6::jsonb, $7::text, $8::text,
        $9::text, $10::text, $11::uuid, $12::message_status, $13::timestamptz, $13::timestamptz,
        $14::timestamptz, $15::timestamptz)
ON CONFLICT DO NOTHING
RETURNING id
