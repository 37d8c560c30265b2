-- Sessions that were closed before $1, and that nobody has looked at since.
SELECT id, close_reason FROM session
WHERE closed_at IS NOT NULL AND settled_at IS NULL AND closed_at < $1::timestamptz
ORDER BY closed_at
LIMIT $2::bigint
