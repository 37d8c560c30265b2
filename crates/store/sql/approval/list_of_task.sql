-- Questions about one task, after ($1, $2).
SELECT {approval_columns} FROM approval a
WHERE (a.created_at, a.id) {beyond} ($1::timestamptz, $2::uuid)
  AND a.task_id = $5::uuid
  AND ($4::approval_status IS NULL OR a.status = $4)
  AND ($6::text IS NULL OR a.gate = $6)
ORDER BY a.created_at {direction}, a.id {direction}
LIMIT $3::bigint
