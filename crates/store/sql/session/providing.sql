-- What sessions provide for, each kind once: how many of them are open, and when the first and the
-- last of them came. Its condition is that of the index session_providing.
SELECT routes, count(*) - count(closed_at), min(created_at), max(created_at) FROM session
WHERE routes -> 'pools' <> '[]'
GROUP BY routes
ORDER BY max(created_at) DESC
LIMIT $1::bigint
