-- When a task was made, as a number of runs and as a time; see step/next_run.
SELECT (SELECT min(seq) FROM task_history WHERE task_id = $1), created_at
FROM task_spec WHERE id = $1
