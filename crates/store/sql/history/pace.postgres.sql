-- How many tasks left the queue $1 after $2, and since when it has moved: as far as the last $3
-- transitions of all queues tell.
SELECT count(*) FILTER (WHERE h.from_status IN ({claimable}) AND h.to_status NOT IN ({claimable})),
    min(h.at)
FROM (
    SELECT task_id, from_status, to_status, at FROM task_history
    ORDER BY xid DESC, seq DESC
    LIMIT $3::bigint) h
JOIN task_state st ON st.id = h.task_id
WHERE st.queue = $1::text AND h.at > $2::timestamptz
