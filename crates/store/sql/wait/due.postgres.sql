-- Waits whose time has come. Tasks that somebody is changing are skipped: what they become is seen
-- next time.
SELECT {snapshot_columns}, {wait_columns}
FROM wait w
JOIN task_state st ON st.id = w.task_id
JOIN task_spec s ON s.id = st.id
WHERE w.wake_at <= $1
ORDER BY w.wake_at
LIMIT $2
FOR UPDATE OF st SKIP LOCKED
