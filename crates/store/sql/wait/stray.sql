-- Waits of tasks that were ended by hand; everybody else takes the wait along.
DELETE FROM wait
WHERE task_id IN (
    SELECT w.task_id FROM wait w JOIN task_state st ON st.id = w.task_id
    WHERE st.finished_at IS NOT NULL LIMIT $1)
