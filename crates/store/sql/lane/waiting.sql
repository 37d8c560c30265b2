-- Lanes of the queue $1 in which something is ready, at most $2.
SELECT l.id, l.queue, l.profile, l.venture, l.portfolio, l.stage, l.agent, l.llm, l.model, l.tier
FROM lane l
WHERE l.queue = $1::text
  AND EXISTS (SELECT 1 FROM task_state st WHERE st.ready AND st.lane = l.id)
LIMIT $2::bigint
