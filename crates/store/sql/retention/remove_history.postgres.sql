DELETE FROM task_history WHERE task_id = ANY ($1::uuid[])
