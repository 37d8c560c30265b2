-- What handlers hold whose lease ran out.
SELECT {message_columns} FROM message m
WHERE m.status = 'delivered' AND m.lease_expires_at <= $1
ORDER BY m.lease_expires_at
LIMIT $2
