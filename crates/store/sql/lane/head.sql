-- The key of the first ready task of lane $1.
SELECT order_key FROM task_state WHERE ready AND lane = $1::bigint ORDER BY order_key, id LIMIT 1
