-- The record, newest first, before $1.
SELECT seq, at, actor, event, detail FROM audit
WHERE seq < $1
ORDER BY seq DESC
LIMIT $2::bigint
