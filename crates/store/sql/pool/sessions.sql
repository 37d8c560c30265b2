-- Who is alive, oldest first; the caller keeps those that name pools.
SELECT {session_columns} FROM session
WHERE closed_at IS NULL AND expires_at > $1::timestamptz
ORDER BY created_at, id
LIMIT $2::bigint
