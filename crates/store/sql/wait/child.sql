-- How another task ended, if it has.
SELECT status, result, error, finished_at IS NOT NULL FROM task_state WHERE id = $1
