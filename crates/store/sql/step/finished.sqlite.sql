-- What happened after the position of the last time, in the log's order. Times are not: whoever
-- reads stops at the first entry that is too young.
SELECT 0, h.seq, h.task_id, h.at
FROM task_history h
WHERE h.seq > (SELECT seq FROM step_expiry_position)
ORDER BY h.seq
LIMIT $1
