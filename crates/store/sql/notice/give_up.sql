-- No more tries.
UPDATE notice SET given_up_at = $3::timestamptz, delivered_to = $4::jsonb, last_error = $5::text,
    sealed = NULL
WHERE id = $1::uuid AND tries = $2::bigint AND delivered_at IS NULL AND given_up_at IS NULL
RETURNING id
