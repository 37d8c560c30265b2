-- What happened after the position of the last time, in the log's order. Times are not: whoever
-- reads stops at the first entry that is too young.
SELECT h.xid, h.seq, h.task_id, h.at
FROM step_expiry_position p, task_history h
WHERE (h.xid, h.seq) > (p.xid, p.seq) AND h.xid < windlass_horizon()
ORDER BY h.xid, h.seq
LIMIT $1
