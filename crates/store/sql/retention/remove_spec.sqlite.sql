DELETE FROM task_spec WHERE id IN (SELECT value FROM json_each($1))
