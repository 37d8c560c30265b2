-- One task's transitions.
SELECT task_id, seq, from_status, to_status, event, actor, reason, lease_id, metadata, at
FROM task_history
WHERE task_id = $1 AND seq {beyond} $2
ORDER BY seq {direction}
LIMIT $3
