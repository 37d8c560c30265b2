-- One step of a task.
SELECT {step_columns} FROM step WHERE task_id = $1 AND id = $2
