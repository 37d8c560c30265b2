-- How many ready tasks of the lanes $1 stand before the place ($2, $3); counted to $4.
SELECT count(*) FROM (
    SELECT 1 AS one
    FROM unnest($1::text[]::bigint[]) AS l (id)
    JOIN task_state st ON st.ready AND st.lane = l.id
        AND (st.order_key, st.id) < ($2::bigint, $3::uuid)
    LIMIT $4::bigint) ahead
