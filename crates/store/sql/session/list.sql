-- Open sessions, after ($1, $2).
SELECT {session_columns} FROM session
WHERE closed_at IS NULL AND (created_at, id) {beyond} ($1::timestamptz, $2::uuid)
ORDER BY created_at {direction}, id {direction}
LIMIT $3::bigint
