-- The keys of the first $1 ready tasks of lane $2, from its key $3 upwards.
SELECT lane, order_key FROM task_state
WHERE ready AND lane = $2 AND order_key >= $3
ORDER BY order_key, id
LIMIT $1
