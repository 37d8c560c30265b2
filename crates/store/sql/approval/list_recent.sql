-- Questions, after ($1, $2). No filter leads, so the time does.
SELECT {approval_columns} FROM approval a
WHERE (a.created_at, a.id) {beyond} ($1::timestamptz, $2::uuid)
  AND ($4::text IS NULL OR a.gate = $4)
ORDER BY a.created_at {direction}, a.id {direction}
LIMIT $3::bigint
