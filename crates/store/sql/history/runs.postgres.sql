-- When those began and ended who lately held a slot of a limit, the last end first, at most $4: as
-- far as the last $3 transitions of all queues go.
WITH last AS (
    SELECT task_id, from_status, to_status FROM task_history
    ORDER BY xid DESC, seq DESC
    LIMIT $3::bigint
)
SELECT st.claimed_at, st.finished_at
FROM last h
JOIN task_state st ON st.id = h.task_id
WHERE h.from_status IN ({held}) AND h.to_status IN ({terminal})
  AND st.claimed_at IS NOT NULL AND st.finished_at IS NOT NULL
  AND {under_limit}
ORDER BY st.finished_at DESC
LIMIT $4::bigint
