-- Alerts that somebody acknowledged long ago.
DELETE FROM alert WHERE id IN (
    SELECT id FROM alert
    WHERE acknowledged_at IS NOT NULL AND acknowledged_at <= $1::timestamptz
    ORDER BY acknowledged_at
    LIMIT $2::bigint)
RETURNING id
