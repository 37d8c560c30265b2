-- What a sender sent under a key.
SELECT {message_columns} FROM message m
WHERE m.from_agent = $1::text AND m.idempotency_key = $2::text
