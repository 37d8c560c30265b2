-- How many tasks left a queue after $3, and since when it has moved: as far as the last $4
-- transitions of all queues tell.
SELECT count(*) FILTER (WHERE h.from_status IN ({claimable}) AND h.to_status NOT IN ({claimable})),
    min(h.at)
FROM (
    SELECT task_id, from_status, to_status, at FROM task_history
    ORDER BY xid DESC, seq DESC
    LIMIT $4::bigint) h
JOIN task_state st ON st.id = h.task_id
WHERE st.queue = $1::text AND st.profile = $2::task_profile AND h.at > $3::timestamptz
