-- How many tasks ever ended in which state: what the duty has counted, and what came since.
SELECT status, sum(n)
FROM (
    SELECT status, ended AS n FROM task_tally
    UNION ALL
    SELECT to_status, count(*) FROM task_history
    WHERE seq > (SELECT seq FROM task_tally_position) AND to_status IN ({terminal})
    GROUP BY to_status
)
GROUP BY status
