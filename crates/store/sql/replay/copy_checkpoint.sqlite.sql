-- The new task goes on from the origin's checkpoint; $3 is for PostgreSQL.
INSERT INTO task_progress (task_id, checkpoint, updated_at)
SELECT $2, checkpoint, $4 FROM task_progress
WHERE task_id = $1 AND checkpoint IS NOT NULL AND $3 IS NOT NULL
ON CONFLICT (task_id) DO NOTHING
