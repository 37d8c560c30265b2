-- The tasks $1 that are there: whoever writes is alone.
SELECT id FROM task_state WHERE id IN (SELECT value FROM json_each($1))
