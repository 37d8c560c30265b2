-- How a lease ended its attempt. The history knows it after the task has moved on.
SELECT event, to_status, metadata FROM task_history
WHERE task_id = $1 AND lease_id = $2 AND from_status IN ({held}) AND event <> 'start'
ORDER BY seq DESC
LIMIT 1
