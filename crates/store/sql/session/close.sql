UPDATE session
SET closed_at = $2::timestamptz, close_reason = $3::text, node = NULL, updated_at = $2::timestamptz
WHERE id = $1::uuid AND closed_at IS NULL
RETURNING id
