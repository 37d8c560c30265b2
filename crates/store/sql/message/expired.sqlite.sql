-- What nobody took in time.
SELECT {message_columns} FROM message m
WHERE m.status = 'pending' AND m.expires_at IS NOT NULL AND m.expires_at <= $1
ORDER BY m.expires_at
LIMIT $2
