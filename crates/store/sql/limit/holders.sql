-- Who holds the slots of a limit, longest first: of many, some $3.
SELECT id, claimed_by, claimed_at FROM (
    SELECT st.id, st.claimed_by, st.claimed_at
    FROM task_state st
    WHERE st.claimed_by IS NOT NULL AND st.finished_at IS NULL AND st.status IN ({held})
      AND {under_limit}
    LIMIT $3::bigint) holder
ORDER BY claimed_at, id
