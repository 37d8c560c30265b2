DELETE FROM approval_token WHERE task_id IN (SELECT value FROM json_each($1))
