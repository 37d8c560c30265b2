DELETE FROM task_progress WHERE task_id = ANY ($1::uuid[])
