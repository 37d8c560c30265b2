-- How many ready tasks of the same venture stand before the place ($2, $3) of lane $1; counted to
-- $4.
SELECT count(*) FROM (
    SELECT 1 AS one
    FROM lane mine
    JOIN lane l ON l.queue = mine.queue AND l.venture = mine.venture
    JOIN task_state st ON st.ready AND st.lane = l.id
        AND (st.order_key, st.id) < ($2::bigint, $3::uuid)
    WHERE mine.id = $1::bigint
    LIMIT $4::bigint) ahead
