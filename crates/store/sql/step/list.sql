-- A task's steps, oldest first.
SELECT {step_columns} FROM step WHERE task_id = $1 AND seq > $2 ORDER BY seq LIMIT $3
