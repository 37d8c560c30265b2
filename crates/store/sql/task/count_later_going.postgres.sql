-- How many tasks wait for a time after $1, at most $2 of them, and how many of these are of none of
-- the keys $3, of which nothing may begin.
SELECT coalesce(sum(later), 0)::bigint, coalesce(sum(later) FILTER (WHERE NOT coalesce(
    (SELECT ARRAY['queue:' || l.queue, 'venture:' || l.venture, 'agent:' || l.agent,
            'stage:' || l.stage, 'portfolio:' || l.portfolio] && $3::text[]
     FROM lane l WHERE l.id = of_lane.lane), FALSE)), 0)::bigint
FROM (
    SELECT lane, count(*) AS later FROM (
        SELECT lane FROM task_state
        WHERE NOT ready AND status IN ({claimable}) AND profile <> 'ledger' AND run_at > $1
        LIMIT $2::bigint) AS later
    GROUP BY lane) AS of_lane
