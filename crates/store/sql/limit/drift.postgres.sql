-- Keys whose counts are not those of the tasks, with what is counted and what there is. Whoever
-- changes a task counts it in the same transaction, so in one snapshot both agree unless somebody
-- has written counts by hand: no lock is needed to know. The condition of each part is that of an
-- index, so that finished tasks are not read.
WITH part AS (
    SELECT lane, 0 AS active, count(*) AS pending FROM task_state WHERE ready GROUP BY lane
    UNION ALL
    SELECT lane, 0, count(*) FROM task_state
    WHERE NOT ready AND status IN ({claimable}) AND profile <> 'ledger'
    GROUP BY lane
    UNION ALL
    SELECT lane, count(*), 0 FROM task_state
    WHERE claimed_by IS NOT NULL AND finished_at IS NULL AND status IN ({held})
    GROUP BY lane
), there_is AS (
    SELECT k AS key, sum(p.active) AS active, sum(p.pending) AS pending
    FROM part p JOIN lane l ON l.id = p.lane, unnest(l.keys) AS k
    GROUP BY k
), counted AS (
    SELECT key, sum(active) AS active, sum(pending) AS pending FROM limit_count GROUP BY key
)
SELECT key, key, coalesce(c.active, 0)::bigint, coalesce(c.pending, 0)::bigint,
    coalesce(t.active, 0)::bigint, coalesce(t.pending, 0)::bigint
FROM there_is t FULL JOIN counted c USING (key)
WHERE coalesce(c.active, 0) <> coalesce(t.active, 0)
   OR coalesce(c.pending, 0) <> coalesce(t.pending, 0)
ORDER BY key
