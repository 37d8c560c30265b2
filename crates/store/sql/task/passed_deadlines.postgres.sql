-- Living tasks whose deadline passed.
-- Rows that somebody is changing are skipped: what they become is seen next time.
SELECT {snapshot_columns}
FROM task_state st
JOIN task_spec s ON s.id = st.id
WHERE st.deadline_at <= $1 AND st.deadline_at IS NOT NULL
  AND st.status IN ({living})
ORDER BY st.deadline_at
LIMIT $2
FOR UPDATE OF st SKIP LOCKED
