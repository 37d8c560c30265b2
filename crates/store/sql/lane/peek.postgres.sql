-- The keys of the first $1 ready tasks of each lane $2, from its key $3 upwards.
SELECT l.lane, t.order_key
FROM unnest($2::bigint[], $3::bigint[]) AS l (lane, from_key),
    LATERAL (
        SELECT order_key FROM task_state
        WHERE ready AND lane = l.lane AND order_key >= l.from_key
        ORDER BY order_key, id
        LIMIT $1::bigint) t
