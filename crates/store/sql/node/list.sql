-- Nodes that are alive, after ($2, $3).
SELECT id, url, version, started_at, expires_at FROM node
WHERE expires_at > $1::timestamptz AND (started_at, id) {beyond} ($2::timestamptz, $3::uuid)
ORDER BY started_at {direction}, id {direction}
LIMIT $4::bigint
