DELETE FROM trouble_note WHERE task_id IN (SELECT value FROM json_each($1))
