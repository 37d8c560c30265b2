-- Lanes whose counts are not those of their tasks, with what is counted and what there is: somebody
-- has written counts by hand. The condition of each part is that of an index, so that finished
-- tasks are not read.
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
    SELECT lane, sum(active) AS active, sum(pending) AS pending FROM part GROUP BY lane
)
SELECT CAST(l.id AS TEXT), 'a lane of queue:' || l.queue || ' venture:' || l.venture,
    l.active, l.pending, coalesce(t.active, 0), coalesce(t.pending, 0)
FROM lane l LEFT JOIN there_is t ON t.lane = l.id
WHERE l.profile <> 'ledger'
  AND (l.active <> coalesce(t.active, 0) OR l.pending <> coalesce(t.pending, 0))
ORDER BY l.id
