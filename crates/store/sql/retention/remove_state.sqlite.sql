DELETE FROM task_state WHERE id IN (SELECT value FROM json_each($1))
