-- How many ventures have something ready in this queue and profile; counted to $3.
SELECT count(DISTINCT venture) FROM (
    SELECT l.venture FROM lane l
    WHERE l.queue = $1::text AND l.profile = $2::task_profile
      AND EXISTS (SELECT 1 FROM task_state st WHERE st.ready AND st.lane = l.id)
    LIMIT $3::bigint) waiting
