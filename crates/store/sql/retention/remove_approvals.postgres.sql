DELETE FROM approval WHERE task_id = ANY ($1::uuid[])
