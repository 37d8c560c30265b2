-- The record, oldest first, after $1: there is one writer, so its numbers are the order of commits.
SELECT seq, at, actor, event, subject, detail FROM audit
WHERE seq > $1
  AND ($3 IS NULL OR actor = $3)
  AND ($4 IS NULL OR event = $4)
  AND ($5 IS NULL OR subject = $5)
  AND ($6 IS NULL OR at >= $6)
  AND ($7 IS NULL OR at < $7)
ORDER BY seq
LIMIT $2
