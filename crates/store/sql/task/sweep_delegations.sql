-- Delegations in flight, after $4, that are overdue or fell silent after a beat. Nothing is locked:
-- whoever acts on one decides again under its lock.
SELECT st.id
FROM task_state st
WHERE st.profile IN ('delegation', 'ledger') AND st.status IN ({living})
  AND st.id > $4::uuid
  AND (st.deadline_at <= $1::timestamptz
    OR (st.lease_expires_at IS NOT NULL AND st.last_heartbeat_at <= $2::timestamptz))
ORDER BY st.id
LIMIT $3::bigint
