-- How many ventures that nobody has paused have something ready in the queue $1; counted to $2.
SELECT count(DISTINCT venture) FROM (
    SELECT l.venture FROM lane l
    WHERE l.queue = $1::text
      AND EXISTS (SELECT 1 FROM task_state st WHERE st.ready AND st.lane = l.id)
      AND NOT EXISTS (SELECT 1 FROM pause p
          WHERE p.scope = 'venture' AND p.name = l.venture AND p.mode = 'pause')
    LIMIT $2::bigint) waiting
