SELECT id, url, version, started_at, expires_at FROM node
WHERE expires_at > $1::timestamptz
ORDER BY started_at, id
