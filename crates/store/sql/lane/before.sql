-- Lanes of the same queue and venture as the lane $1 in which something ready stands before the
-- place ($2, $3), at most $4.
SELECT l.id, l.queue, l.profile, l.venture, l.portfolio, l.stage, l.agent, l.llm, l.model, l.tier
FROM lane mine
JOIN lane l ON l.queue = mine.queue AND l.venture = mine.venture
WHERE mine.id = $1::bigint
  AND EXISTS (SELECT 1 FROM task_state st WHERE st.ready AND st.lane = l.id
          AND (st.order_key, st.id) < ($2::bigint, $3::uuid))
LIMIT $4::bigint
