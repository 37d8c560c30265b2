DELETE FROM task_spec WHERE id = ANY ($1::uuid[])
