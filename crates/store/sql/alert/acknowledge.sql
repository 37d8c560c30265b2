-- The first who acknowledges it stays written.
UPDATE alert SET acknowledged_at = $2::timestamptz, acknowledged_by = $3::text
WHERE id = $1::uuid AND acknowledged_at IS NULL
RETURNING {alert_columns}
