-- The new task goes on from the origin's checkpoint.
INSERT INTO task_progress (task_id, checkpoint, change_id, updated_at)
SELECT $2::uuid, checkpoint, $3::uuid, $4::timestamptz FROM task_progress
WHERE task_id = $1::uuid AND checkpoint IS NOT NULL
ON CONFLICT (task_id) DO NOTHING
