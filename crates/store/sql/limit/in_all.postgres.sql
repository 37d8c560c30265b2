-- What is held of everything.
SELECT coalesce(sum(active), 0)::bigint, coalesce(sum(pending), 0)::bigint
FROM limit_count WHERE key = 'global:'
