-- How the line of the queue $1 grew and shrank after $2, the last change first, and since when that
-- is told: as far as the last $3 transitions of all queues go.
WITH last AS (
    SELECT task_id, from_status, to_status, at FROM task_history
    ORDER BY seq DESC
    LIMIT $3
), told AS (
    SELECT CASE WHEN count(*) >= $3 THEN min(at) END AS since FROM last
)
SELECT h.at,
    CASE WHEN h.to_status IN ({claimable}) THEN 1 ELSE 0 END
        - CASE WHEN h.from_status IN ({claimable}) THEN 1 ELSE 0 END,
    told.since
FROM told, last h
JOIN task_state st ON st.id = h.task_id
WHERE st.queue = $1 AND h.at > $2
ORDER BY h.at DESC
