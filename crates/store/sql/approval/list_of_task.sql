-- Questions about one task, newest first, after ($1, $2).
SELECT {approval_columns} FROM approval a
WHERE (a.created_at, a.id) < ($1::timestamptz, $2::uuid)
  AND a.task_id = $5::uuid
  AND ($4::approval_status IS NULL OR a.status = $4)
  AND ($6::text IS NULL OR a.gate = $6)
ORDER BY a.created_at DESC, a.id DESC
LIMIT $3::bigint
