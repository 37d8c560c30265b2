DELETE FROM task_history WHERE task_id IN (SELECT value FROM json_each($1))
