-- Who has waited longest for this signal.
SELECT {wait_columns} FROM wait w WHERE w.signal = $1 AND w.key = $2 ORDER BY w.created_at LIMIT 1
