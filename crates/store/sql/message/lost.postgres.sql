-- What handlers hold whose lease ran out. Rows that somebody is changing are skipped.
SELECT {message_columns} FROM message m
WHERE m.status = 'delivered' AND m.lease_expires_at <= $1::timestamptz
ORDER BY m.lease_expires_at
LIMIT $2::bigint
FOR UPDATE SKIP LOCKED
