-- Whether a response was deleted.
SELECT 1 FROM deleted_response WHERE task_id = $1
