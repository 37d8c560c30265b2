DELETE FROM deleted_response WHERE task_id = ANY ($1::uuid[])
