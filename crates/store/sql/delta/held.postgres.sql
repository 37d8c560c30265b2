-- Which of these tasks somebody holds, in which attempt.
SELECT id, attempt FROM task_state WHERE id = ANY ($1::uuid[]) AND status IN ({held})
