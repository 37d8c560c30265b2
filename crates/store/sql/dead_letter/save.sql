-- Guarded by where it stood.
UPDATE dead_letter SET status = $3::text, assignee = $4::text, updated_at = $5::timestamptz,
    closed_at = $6::timestamptz, resolved_by_message = $7::uuid
WHERE message_id = $1::uuid AND status = $2::text
RETURNING message_id
