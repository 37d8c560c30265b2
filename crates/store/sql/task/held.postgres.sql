-- Those of the tasks $2 that a session holds, whichever call gave them.
SELECT st.lease_id, st.attempt, st.lease_expires_at, {task_columns}
FROM task_state st
JOIN task_spec s ON s.id = st.id
LEFT JOIN task_progress p ON p.task_id = st.id
WHERE st.id = ANY ($2::uuid[])
  AND st.claimed_by = $1::text AND st.finished_at IS NULL AND st.lease_id IS NOT NULL
ORDER BY st.lease_expires_at NULLS FIRST, st.order_key, st.id
