-- For what a task waits.
SELECT {wait_columns} FROM wait w WHERE w.task_id = $1
