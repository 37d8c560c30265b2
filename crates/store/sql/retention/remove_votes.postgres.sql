DELETE FROM approval_vote WHERE task_id = ANY ($1::uuid[])
