-- All sessions that are still remembered, newest first, after ($1, $2).
SELECT {session_columns} FROM session
WHERE (created_at, id) < ($1::timestamptz, $2::uuid)
ORDER BY created_at DESC, id DESC
LIMIT $3::bigint
