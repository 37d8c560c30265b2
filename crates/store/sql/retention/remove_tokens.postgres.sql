DELETE FROM approval_token WHERE task_id = ANY ($1::uuid[])
