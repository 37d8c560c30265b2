-- Messages to one agent, after ($1, $2).
SELECT {message_columns} FROM message m
WHERE (m.created_at, m.id) {beyond} ($1::timestamptz, $2::uuid)
  AND m.to_agent = $4::text
  AND ($4::text IS NULL OR m.to_agent = $4)
  AND ($5::text IS NULL OR m.from_agent = $5)
  AND ($6::message_status IS NULL OR m.status = $6)
  AND ($7::text IS NULL OR m.type = $7)
  AND ($8::text IS NULL OR m.correlation_id = $8)
  AND ($9::timestamptz IS NULL OR m.created_at >= $9)
  AND ($10::timestamptz IS NULL OR m.created_at < $10)
ORDER BY m.created_at {direction}, m.id {direction}
LIMIT $3::bigint
