-- Waits for tasks that have ended: for these tasks, or for any.
SELECT {snapshot_columns}, {wait_columns}, c.status, c.result, c.error
FROM wait w
JOIN task_state c ON c.id = w.child_id
JOIN task_state st ON st.id = w.task_id
JOIN task_spec s ON s.id = st.id
WHERE w.child_id IS NOT NULL
  AND ($1 IS NULL OR w.child_id IN (SELECT value FROM json_each($1)))
  AND c.finished_at IS NOT NULL
LIMIT $2
