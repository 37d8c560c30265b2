-- All transitions after a position. Nothing at or above the oldest running transaction is shown
-- yet: one that took its number early and commits late would be skipped.
SELECT task_id, seq, from_status, to_status, event, actor, reason, lease_id, metadata, at, xid
FROM task_history
WHERE (xid, seq) > ($1::bigint, $2::bigint) AND xid < windlass_horizon()
ORDER BY xid, seq
LIMIT $3::bigint
