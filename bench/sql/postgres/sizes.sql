SELECT coalesce(sum(pg_total_relation_size(c.oid)) FILTER (WHERE c.relname NOT LIKE 'floor%'), 0)
           ::bigint AS ours,
       coalesce(sum(pg_total_relation_size(c.oid)) FILTER (WHERE c.relname LIKE 'floor%'), 0)
           ::bigint AS floor
FROM pg_class c
WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace
