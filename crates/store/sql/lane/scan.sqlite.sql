-- The lanes that have something ready, each with the key of its head: one step in the index a lane,
-- however many tasks wait in it.
WITH RECURSIVE head (lane) AS (
    SELECT (SELECT min(lane) FROM task_state WHERE ready)
    UNION ALL
    SELECT (SELECT min(lane) FROM task_state WHERE ready AND lane > head.lane)
    FROM head WHERE head.lane IS NOT NULL
)
SELECT l.id, l.queue, l.profile, l.venture, l.portfolio, l.stage, l.agent,
    l.llm, l.model, l.tier,
    (SELECT min(order_key) FROM task_state WHERE ready AND lane = l.id)
FROM head h JOIN lane l ON l.id = h.lane
