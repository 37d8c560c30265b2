-- Inference that no provider took in time: $1 is the latest entry that is too old.
-- Rows that somebody is changing are skipped: what they become is seen next time.
SELECT {snapshot_columns}
FROM task_state st
JOIN task_spec s ON s.id = st.id
WHERE st.profile = 'inference' AND st.status = 'pending' AND st.entered_at <= $1
  AND st.run_at <= $1
ORDER BY st.entered_at
LIMIT $2
FOR UPDATE OF st SKIP LOCKED
