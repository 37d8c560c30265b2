DELETE FROM trouble WHERE task_id = ANY ($1::uuid[])
