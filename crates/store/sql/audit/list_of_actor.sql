-- The record of one actor, after $1.
SELECT seq, at, actor, event, subject, detail FROM audit
WHERE seq {beyond} $1::bigint
  AND actor = $3
  AND ($3::text IS NULL OR actor = $3)
  AND ($4::text IS NULL OR event = $4)
  AND ($5::text IS NULL OR subject = $5)
  AND ($6::timestamptz IS NULL OR at >= $6)
  AND ($7::timestamptz IS NULL OR at < $7)
ORDER BY seq {direction}
LIMIT $2::bigint
