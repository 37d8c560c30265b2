DELETE FROM deleted_response WHERE task_id IN (SELECT value FROM json_each($1))
