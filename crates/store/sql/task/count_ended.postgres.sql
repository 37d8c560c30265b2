-- How many tasks ever ended in which state: what the duty has counted, and what came since.
SELECT status, CAST(sum(n) AS bigint)
FROM (
    SELECT status, ended AS n FROM task_tally
    UNION ALL
    SELECT to_status, count(*) FROM task_history
    WHERE (xid, seq) > ((SELECT xid FROM task_tally_position),
                        (SELECT seq FROM task_tally_position))
      AND to_status IN ({terminal})
    GROUP BY to_status
) AS counted
GROUP BY status
