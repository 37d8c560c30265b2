-- How many tasks left the line after a place in the log, and where it goes on; of very many at once
-- only the first $3 are counted. Reports are about work that never stood in line.
SELECT count(*) FILTER (WHERE from_status IN ({claimable}) AND to_status NOT IN ({claimable})
                          AND event <> 'report'),
    $1, max(seq)
FROM (
    SELECT seq, from_status, to_status, event FROM task_history
    WHERE seq > $2
    ORDER BY seq
    LIMIT $3)
