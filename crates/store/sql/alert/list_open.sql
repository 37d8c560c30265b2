-- Alerts that nobody has acknowledged, after ($1, $2).
SELECT {alert_columns} FROM alert
WHERE acknowledged_at IS NULL AND (created_at, id) {beyond} ($1::timestamptz, $2::uuid)
  AND ($4::text IS NULL OR type = $4)
  AND ($5::text IS NULL OR severity = $5)
  AND ($6::uuid IS NULL OR task_id = $6)
ORDER BY created_at {direction}, id {direction}
LIMIT $3::bigint
