DELETE FROM task_state WHERE id = ANY ($1::uuid[])
