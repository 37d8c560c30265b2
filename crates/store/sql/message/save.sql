-- Guarded by where it stood: the row was loaded under a lock. A message that was swept forgets its
-- lease, so that a late word is known as such.
UPDATE message SET status = $3::message_status, due_at = $4::timestamptz, lease_id = $5::uuid,
    lease_expires_at = NULL, converses = FALSE, last_error = $6::text,
    finished_at = $7::timestamptz, ending_digest = $8::text
WHERE id = $1::uuid AND status = $2::message_status
RETURNING id
