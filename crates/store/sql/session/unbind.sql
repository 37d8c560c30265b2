-- The stream of epoch $2 ended; a newer one is left alone.
UPDATE session SET node = NULL, updated_at = $3::timestamptz
WHERE id = $1::uuid AND stream_epoch = $2::bigint AND closed_at IS NULL
RETURNING id
