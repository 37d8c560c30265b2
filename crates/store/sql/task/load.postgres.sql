-- The tasks as decide() needs them.
-- Locked in the order of their ids, so that two batches cannot wait for each other.
SELECT {snapshot_columns}
FROM task_state st
JOIN task_spec s ON s.id = st.id
WHERE st.id = ANY ($1::uuid[])
ORDER BY st.id
FOR UPDATE OF st
