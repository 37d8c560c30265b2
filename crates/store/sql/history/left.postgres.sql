-- How many tasks left the line after a place in the log, and the last transaction that did it. A
-- pace, not the truth: what commits late with a lower number is not counted, and of very many at
-- once only the first $3 are. Reports are about work that never stood in line.
SELECT count(*) FILTER (WHERE from_status IN ({claimable}) AND to_status NOT IN ({claimable})
                          AND event <> 'report'),
    max(xid), 9223372036854775807
FROM (
    SELECT xid, from_status, to_status, event FROM task_history
    WHERE (xid, seq) > ($1::bigint, $2::bigint)
    ORDER BY xid, seq
    LIMIT $3::bigint) h
