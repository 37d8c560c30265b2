-- Open sessions, newest first, after ($1, $2).
SELECT {session_columns} FROM session
WHERE closed_at IS NULL AND (created_at, id) < ($1::timestamptz, $2::uuid)
ORDER BY created_at DESC, id DESC
LIMIT $3::bigint
