-- What is held of the keys $2, for somebody who only looks: no lock is taken. $1 is for SQLite.
SELECT k.key, coalesce(h.active, 0)::bigint, coalesce(h.pending, 0)::bigint, r.began_at, r.taken
FROM unnest($2::text[]) AS k (key)
LEFT JOIN LATERAL (
    SELECT sum(c.active) AS active, sum(c.pending) AS pending
    FROM limit_count c WHERE c.key = k.key) h ON TRUE
LEFT JOIN limit_rate r ON r.key = k.key
WHERE $1::int > 0
