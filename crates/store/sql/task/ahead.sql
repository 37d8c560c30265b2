-- How many ready tasks stand in lane $1 before the place ($2, $3); counted to $4.
SELECT count(*) FROM (
    SELECT 1 AS one FROM task_state
    WHERE ready AND lane = $1::bigint AND (order_key, id) < ($2::bigint, $3::uuid)
    LIMIT $4::bigint) ahead
