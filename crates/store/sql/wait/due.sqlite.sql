-- Waits whose time has come.
SELECT {snapshot_columns}, {wait_columns}
FROM wait w
JOIN task_state st ON st.id = w.task_id
JOIN task_spec s ON s.id = st.id
WHERE w.wake_at <= $1
ORDER BY w.wake_at
LIMIT $2
