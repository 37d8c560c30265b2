-- The oldest signal for a task that nobody has taken.
SELECT {signal_columns} FROM signal
WHERE task_id = $1 AND name = $2 AND taken_by IS NULL
ORDER BY created_at, id
LIMIT 1
