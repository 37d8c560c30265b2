-- The last place in the log that these tasks had, if nothing behind it was removed before.
UPDATE log_removed AS r
SET xid = h.xid, seq = h.seq
FROM (
    SELECT xid, seq FROM task_history
    WHERE task_id = ANY ($1::uuid[])
    ORDER BY xid DESC, seq DESC
    LIMIT 1) AS h
WHERE (h.xid, h.seq) > (r.xid, r.seq)
