-- Which of these tasks somebody holds, in which attempt.
SELECT id, attempt FROM task_state
WHERE id IN (SELECT value FROM json_each($1)) AND status IN ({held})
