DELETE FROM trouble WHERE task_id IN (SELECT value FROM json_each($1))
