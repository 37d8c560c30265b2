-- The same message again changes nothing: the body of a transaction may run twice.
INSERT INTO dead_letter (message_id, original, from_agent, to_agent, type, correlation_id, reason,
    detail, deliveries, entered_at, updated_at)
VALUES ($1::uuid, $2::jsonb, $3::text, $4::text, $5::text, $6::text, $7::text, $8::text,
        $9::integer, $10::timestamptz, $10::timestamptz)
ON CONFLICT (message_id) DO NOTHING
