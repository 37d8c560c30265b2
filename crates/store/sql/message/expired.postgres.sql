-- What nobody took in time. Rows that somebody is taking are skipped.
SELECT {message_columns} FROM message m
WHERE m.status = 'pending' AND m.expires_at IS NOT NULL AND m.expires_at <= $1::timestamptz
ORDER BY m.expires_at
LIMIT $2::bigint
FOR UPDATE SKIP LOCKED
