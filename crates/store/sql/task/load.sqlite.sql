-- The tasks as decide() needs them.
SELECT {snapshot_columns}
FROM task_state st
JOIN task_spec s ON s.id = st.id
WHERE st.id IN (SELECT value FROM json_each($1))
ORDER BY st.id
