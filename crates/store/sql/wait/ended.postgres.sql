-- Waits for tasks that have ended: for these tasks, or for any. A parent that somebody is changing
-- is skipped; it is seen by the next look at all of them.
SELECT {snapshot_columns}, {wait_columns}, c.status, c.result, c.error
FROM wait w
JOIN task_state c ON c.id = w.child_id
JOIN task_state st ON st.id = w.task_id
JOIN task_spec s ON s.id = st.id
WHERE w.child_id IS NOT NULL AND ($1::uuid[] IS NULL OR w.child_id = ANY ($1::uuid[]))
  AND c.finished_at IS NOT NULL
LIMIT $2
FOR UPDATE OF st SKIP LOCKED
