-- Held tasks whose lease ran out after $4; without $3, not the delegations, which have a sweeper.
-- Rows that somebody is changing are skipped: what they become is seen next time.
SELECT {snapshot_columns}
FROM task_state st
JOIN task_spec s ON s.id = st.id
WHERE st.lease_expires_at <= $1 AND st.lease_expires_at > $4
  AND ($3::boolean OR st.profile NOT IN ('delegation', 'ledger'))
ORDER BY st.lease_expires_at
LIMIT $2
FOR UPDATE OF st SKIP LOCKED
