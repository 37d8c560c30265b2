SELECT 1 FROM task_spec WHERE id = $1::uuid
