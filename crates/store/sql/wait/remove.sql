-- The task waits no longer.
DELETE FROM wait WHERE task_id = $1
