-- A stream was opened on node $2; whatever stream there was before is no longer the current one.
UPDATE session
SET node = $2::uuid, stream_epoch = stream_epoch + 1, expires_at = $3::timestamptz,
    updated_at = $4::timestamptz
WHERE id = $1::uuid AND closed_at IS NULL
RETURNING {session_columns}
