-- How many tasks wait for a time after $1, at most $2 of them, and how many of these are of none of
-- the keys $3, of which nothing may begin.
SELECT coalesce(sum(later), 0), coalesce(sum(later) FILTER (WHERE NOT coalesce(
    (SELECT 'queue:' || l.queue IN (SELECT value FROM json_each($3))
         OR 'venture:' || l.venture IN (SELECT value FROM json_each($3))
         OR 'agent:' || l.agent IN (SELECT value FROM json_each($3))
         OR 'stage:' || l.stage IN (SELECT value FROM json_each($3))
         OR 'portfolio:' || l.portfolio IN (SELECT value FROM json_each($3))
     FROM lane l WHERE l.id = of_lane.lane), FALSE)), 0)
FROM (
    SELECT lane, count(*) AS later FROM (
        SELECT lane FROM task_state
        WHERE NOT ready AND status IN ({claimable}) AND profile <> 'ledger' AND run_at > $1
        LIMIT $2) AS later
    GROUP BY lane) AS of_lane
