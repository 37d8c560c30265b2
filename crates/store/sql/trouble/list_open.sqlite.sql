-- Trouble that is not closed, after ($1, $2).
SELECT {trouble_columns} FROM trouble tr JOIN task_state st ON st.id = tr.task_id
WHERE tr.closed_at IS NULL AND (tr.entered_at, tr.task_id) {beyond} ($1::timestamptz, $2::uuid)
  AND tr.status IN (SELECT value FROM json_each($4))
  AND ($5::text IS NULL OR tr.assignee = $5)
  AND ($6::text IS NULL OR tr.queue = $6)
  AND ($7::text IS NULL OR tr.agent = $7)
ORDER BY tr.entered_at {direction}, tr.task_id {direction}
LIMIT $3::bigint
