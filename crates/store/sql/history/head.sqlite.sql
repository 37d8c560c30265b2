SELECT 0, coalesce(max(seq), 0) FROM task_history
