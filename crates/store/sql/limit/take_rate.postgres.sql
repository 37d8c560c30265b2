-- So many tasks were handed out under a rate: in the period that runs, or in one that begins now.
INSERT INTO limit_rate AS r (key, began_at, taken)
SELECT i.key, clock.now, i.count
FROM (SELECT coalesce($1::timestamptz, date_trunc('milliseconds', clock_timestamp())) AS now) clock,
    unnest($2::text[], $3::bigint[], $4::bigint[]) AS i (key, period_ms, count)
ON CONFLICT (key) DO UPDATE SET
    taken = CASE WHEN excluded.began_at >= r.began_at + interval '1 ms' * (
        SELECT p.period_ms FROM unnest($2, $3) AS p (key, period_ms) WHERE p.key = excluded.key)
        OR excluded.began_at < r.began_at
        THEN excluded.taken ELSE r.taken + excluded.taken END,
    began_at = CASE WHEN excluded.began_at >= r.began_at + interval '1 ms' * (
        SELECT p.period_ms FROM unnest($2, $3) AS p (key, period_ms) WHERE p.key = excluded.key)
        OR excluded.began_at < r.began_at
        THEN excluded.began_at ELSE r.began_at END
