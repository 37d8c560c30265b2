-- Tasks that wait for an answer which did not come in time. Without the hint the planner reads all
-- that are open.
SELECT {snapshot_columns}
FROM approval a INDEXED BY approval_expiry
JOIN task_state st ON st.id = a.task_id AND st.approval_id = a.id
JOIN task_spec s ON s.id = st.id
WHERE a.status = 'open' AND a.expires_at IS NOT NULL AND a.expires_at <= $1
ORDER BY a.expires_at
LIMIT $2
