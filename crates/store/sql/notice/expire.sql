-- Nobody tried to send them for long: there is no webhook.
UPDATE notice SET given_up_at = $2::timestamptz, sealed = NULL,
    last_error = 'no webhook was configured'
WHERE id IN (
    SELECT id FROM notice
    WHERE delivered_at IS NULL AND given_up_at IS NULL AND tries = 0
      AND created_at <= $1::timestamptz
    ORDER BY created_at
    LIMIT $3::bigint)
  AND tries = 0 AND delivered_at IS NULL AND given_up_at IS NULL
RETURNING id
