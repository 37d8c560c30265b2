-- Takes the lock $1 together with others if there is room for all when each adds at most $2, under
-- the limits $4 and $5 of the keys $3, and if $6 is the version of the rules when it has the lock,
-- or NULL; fails otherwise, and so does what follows it.
SELECT CASE WHEN windlass_share_or_fail(
    $1::int, $2::int, $3::text[], $4::text[]::bigint[], $5::text[]::bigint[])
    THEN CASE WHEN $6::bigint IS NULL THEN TRUE ELSE windlass_rules_stand($6) END END
