-- Every receiver has it. True however late it is said.
UPDATE notice SET delivered_at = $2::timestamptz, delivered_to = $3::jsonb, sealed = NULL,
    last_error = NULL, given_up_at = NULL
WHERE id = $1::uuid AND delivered_at IS NULL
RETURNING id
