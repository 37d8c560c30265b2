-- Tasks that wait for an answer which did not come in time.
-- Rows that somebody is changing are skipped: what they become is seen next time.
SELECT {snapshot_columns}
FROM approval a
JOIN task_state st ON st.id = a.task_id AND st.approval_id = a.id
JOIN task_spec s ON s.id = st.id
WHERE a.status = 'open' AND a.expires_at IS NOT NULL AND a.expires_at <= $1
ORDER BY a.expires_at
LIMIT $2
FOR UPDATE OF st SKIP LOCKED
