DELETE FROM signal
WHERE task_id IN (SELECT value FROM json_each($1)) OR taken_by IN (SELECT value FROM json_each($1))
