-- Takes the lock $1 together with others if there is room for all when each adds at most $2, under
-- the limits $4 and $5 of the keys $3; fails otherwise, and so does what follows it.
SELECT windlass_share_or_fail(
    $1::int, $2::int, $3::text[], $4::text[]::bigint[], $5::text[]::bigint[])
