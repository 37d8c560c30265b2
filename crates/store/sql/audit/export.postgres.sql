-- The record in the order of its commits, after the entry $1 (a number that no entry has: after the
-- last one before it). Nothing at or above the oldest running transaction is shown yet: one that
-- took its number early and commits late would be skipped.
SELECT seq, at, actor, event, subject, detail FROM audit
WHERE (xid, seq) > (coalesce((SELECT e.xid FROM audit e WHERE e.seq <= $1::bigint
                              ORDER BY e.seq DESC LIMIT 1), 0), $1::bigint)
  AND xid < windlass_horizon()
  AND ($3::text IS NULL OR actor = $3)
  AND ($4::text IS NULL OR event = $4)
  AND ($5::text IS NULL OR subject = $5)
  AND ($6::timestamptz IS NULL OR at >= $6)
  AND ($7::timestamptz IS NULL OR at < $7)
ORDER BY xid, seq
LIMIT $2::bigint
