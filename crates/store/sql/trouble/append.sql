-- A note, never overwritten. The same id again changes nothing.
INSERT INTO trouble_note (id, task_id, at, author, event, note, assignee)
VALUES ($1::uuid, $2::uuid, $3::timestamptz, $4::text, $5::text, $6::text,
    $7::text)
ON CONFLICT (id) DO NOTHING
