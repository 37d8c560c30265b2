-- Deletes a response; one that is deleted already gives no row.
INSERT INTO deleted_response (task_id, deleted_by, deleted_at) VALUES ($1, $2, $3)
ON CONFLICT (task_id) DO NOTHING
RETURNING task_id
