-- The message that says nothing of what it belongs to, because it was written by hand: it belongs
-- to its own id ($8), as it is shown. After ($1, $2).
SELECT {message_columns} FROM message m
WHERE (m.created_at, m.id) {beyond} ($1::timestamptz, $2::uuid)
  AND m.id = $8::uuid AND m.correlation_id IS NULL
  AND ($4::text IS NULL OR m.to_agent = $4)
  AND ($5::text IS NULL OR m.from_agent = $5)
  AND ($6::message_status IS NULL OR m.status = $6)
  AND ($7::text IS NULL OR m.type = $7)
  AND ($9::timestamptz IS NULL OR m.created_at >= $9)
  AND ($10::timestamptz IS NULL OR m.created_at < $10)
LIMIT $3::bigint
