-- Notices, after ($1, $2).
SELECT {notice_columns} FROM notice
WHERE (created_at, id) {beyond} ($1::timestamptz, $2::uuid)
  AND ($4::text IS NULL OR kind = $4)
  AND ($5::text IS NULL OR severity = $5)
  AND ($6::text IS NULL OR $6 = CASE WHEN delivered_at IS NOT NULL THEN 'delivered'
       WHEN given_up_at IS NOT NULL THEN 'given_up' ELSE 'waiting' END)
  AND ($7::uuid IS NULL OR subject_id = $7)
ORDER BY created_at {direction}, id {direction}
LIMIT $3::bigint
