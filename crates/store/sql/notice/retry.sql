-- Some receiver does not have it. Only the last try decides what follows.
UPDATE notice SET due_at = $3::timestamptz, delivered_to = $4::jsonb, last_error = $5::text
WHERE id = $1::uuid AND tries = $2::bigint AND delivered_at IS NULL AND given_up_at IS NULL
RETURNING id
