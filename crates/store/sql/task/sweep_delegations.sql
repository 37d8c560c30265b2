-- Open delegations that are overdue, and those that fell silent after a beat: a bounded number
-- of each. A ledger delegation takes no lease, and may beat before its caller reports anything.
-- Nothing is locked: whoever acts on one decides again under its lock.
SELECT id FROM (
    SELECT st.id FROM task_state st
    WHERE st.deadline_at <= $1::timestamptz AND st.deadline_at IS NOT NULL
      AND st.status IN ({living}) AND st.profile IN ('delegation', 'ledger')
    ORDER BY st.deadline_at
    LIMIT $3::bigint) AS overdue
UNION
SELECT id FROM (
    SELECT st.id FROM task_state st
    WHERE st.last_heartbeat_at <= $2::timestamptz
      AND (st.lease_expires_at IS NOT NULL OR st.profile = 'ledger')
      AND st.status IN ({living}) AND st.profile IN ('delegation', 'ledger')
    ORDER BY st.last_heartbeat_at
    LIMIT $3::bigint) AS silent
ORDER BY id
