-- How many ready tasks of the lanes $1 stand before the place ($2, $3); counted to $4.
SELECT count(*) FROM (
    SELECT 1 AS one
    FROM json_each($1) l
    CROSS JOIN task_state st ON st.ready AND st.lane = CAST(l.value AS INTEGER)
        AND (st.order_key, st.id) < ($2, $3)
    LIMIT $4) ahead
