-- A note, never overwritten. The same id again changes nothing.
INSERT INTO dead_letter_note (id, message_id, at, author, event, note, assignee)
VALUES ($1::uuid, $2::uuid, $3::timestamptz, $4::text, $5::text, $6::text,
    $7::text)
ON CONFLICT (id) DO NOTHING
