-- Waits of tasks that wait no longer: they were cancelled, or ended by their deadline.
DELETE FROM wait
WHERE task_id IN (
    SELECT w.task_id FROM wait w JOIN task_state st ON st.id = w.task_id
    WHERE st.finished_at IS NOT NULL LIMIT $1)
