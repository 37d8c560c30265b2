-- Who holds the slots of a limit: of at most $3 that are looked at, the $4 that hold them longest.
-- The lane is looked up for each held task: as a join it may be planned as a walk over all lanes.
SELECT id, claimed_by, claimed_at FROM (
    SELECT st.id, st.claimed_by, st.claimed_at
    FROM task_state st
    WHERE st.claimed_by IS NOT NULL AND st.finished_at IS NULL AND st.status IN ({held})
      AND (SELECT CASE $1::text
                WHEN 'global' THEN TRUE
                WHEN 'portfolio' THEN l.portfolio = $2::text
                WHEN 'venture' THEN l.venture = $2::text
                WHEN 'stage' THEN l.stage = $2::text
                WHEN 'agent' THEN l.agent = $2::text
                ELSE l.queue = $2::text END
            FROM lane l WHERE l.id = st.lane AND l.profile <> 'ledger')
    LIMIT $3::bigint) holder
ORDER BY claimed_at, id
LIMIT $4::bigint
