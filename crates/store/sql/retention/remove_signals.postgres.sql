DELETE FROM signal WHERE task_id = ANY ($1::uuid[]) OR taken_by = ANY ($1::uuid[])
