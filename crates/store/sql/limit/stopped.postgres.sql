-- How many pending tasks the keys $1 hold together, of none of which anything may begin. A task is
-- of one key of each scope and perhaps of two scopes' keys, which nobody counts: where keys of
-- several scopes are given, those of the scope that holds most are told, so it may be too few.
SELECT coalesce(max(pending), 0)::bigint FROM (
    SELECT sum(pending) AS pending FROM limit_count
    WHERE key = ANY ($1::text[])
    GROUP BY split_part(key, ':', 1)) of_scope
