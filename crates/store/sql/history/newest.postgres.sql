-- The last transition that is shown.
SELECT xid, seq FROM task_history
WHERE xid < windlass_horizon()
ORDER BY xid DESC, seq DESC
LIMIT 1
