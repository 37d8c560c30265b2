-- What a session holds.
SELECT {snapshot_columns}
FROM task_state st
JOIN task_spec s ON s.id = st.id
WHERE st.claimed_by = $1 AND st.finished_at IS NULL
ORDER BY st.id
