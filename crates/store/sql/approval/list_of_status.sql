-- Questions that stand so, after ($1, $2).
SELECT {approval_columns} FROM approval a
WHERE (a.created_at, a.id) {beyond} ($1::timestamptz, $2::uuid)
  AND a.status = $4::approval_status
  AND ($5::text IS NULL OR a.gate = $5)
ORDER BY a.created_at {direction}, a.id {direction}
LIMIT $3::bigint
