DELETE FROM trouble_note WHERE task_id = ANY ($1::uuid[])
