-- The lanes that have something ready, each with the key of its head: one step in the index a lane,
-- however many tasks wait in it.
WITH RECURSIVE head AS (
    (SELECT lane, order_key FROM task_state WHERE ready ORDER BY lane, order_key LIMIT 1)
    UNION ALL
    SELECT n.lane, n.order_key
    FROM head h, LATERAL (
        SELECT lane, order_key FROM task_state
        WHERE ready AND lane > h.lane
        ORDER BY lane, order_key
        LIMIT 1) n
)
SELECT l.id, l.queue, l.profile, l.venture, l.portfolio, l.stage, l.agent,
    l.llm, l.model, l.tier, h.order_key
FROM head h JOIN lane l ON l.id = h.lane
