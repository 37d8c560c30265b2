-- Held tasks whose lease ran out.
SELECT {snapshot_columns}
FROM task_state st
JOIN task_spec s ON s.id = st.id
WHERE st.lease_expires_at <= $1
ORDER BY st.lease_expires_at
LIMIT $2
