-- Nodes that are alive, oldest first, after ($2, $3).
SELECT id, url, version, started_at, expires_at FROM node
WHERE expires_at > $1::timestamptz AND (started_at, id) > ($2::timestamptz, $3::uuid)
ORDER BY started_at, id
LIMIT $4::bigint
