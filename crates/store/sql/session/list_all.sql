-- All sessions that are still remembered, after ($1, $2).
SELECT {session_columns} FROM session
WHERE (created_at, id) {beyond} ($1::timestamptz, $2::uuid)
ORDER BY created_at {direction}, id {direction}
LIMIT $3::bigint
