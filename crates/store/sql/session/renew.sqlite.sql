-- Sessions that are alive. One that was closed or swept stays closed: its worker registers again.
UPDATE session SET expires_at = $2, updated_at = $3
WHERE id IN (SELECT value FROM json_each($1)) AND closed_at IS NULL
RETURNING id, stream_epoch
