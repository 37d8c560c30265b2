-- When a task was made, as a number of runs and as a time; see step/next_run. No number if
-- that entry of the log is kept elsewhere.
SELECT (SELECT min(seq) * 1048576 FROM task_history WHERE task_id = $1 AND event = 'submit'),
    created_at
FROM task_spec WHERE id = $1
