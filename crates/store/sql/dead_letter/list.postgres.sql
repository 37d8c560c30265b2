-- Dead letters in these states, after ($1, $2).
SELECT {dead_letter_columns} FROM dead_letter dl
WHERE (dl.entered_at, dl.message_id) {beyond} ($1::timestamptz, $2::uuid)
  AND dl.status = ANY ($4::text[])
  AND ($5::text IS NULL OR dl.assignee = $5)
  AND ($6::text IS NULL OR dl.to_agent = $6)
  AND ($7::text IS NULL OR dl.from_agent = $7)
  AND ($8::text IS NULL OR dl.reason = $8)
ORDER BY dl.entered_at {direction}, dl.message_id {direction}
LIMIT $3::bigint
