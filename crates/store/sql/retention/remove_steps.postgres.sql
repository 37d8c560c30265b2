DELETE FROM step WHERE task_id = ANY ($1::uuid[])
