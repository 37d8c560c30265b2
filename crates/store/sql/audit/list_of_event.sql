-- The record of one event, newest first, before $1.
SELECT seq, at, actor, event, detail FROM audit
WHERE event = $3 AND seq < $1
ORDER BY seq DESC
LIMIT $2::bigint
