-- How many tasks each of the sessions $1 holds, counted to $2.
SELECT asked.value, (
    SELECT count(*) FROM (
        SELECT 1 FROM task_state
        WHERE claimed_by = asked.value AND finished_at IS NULL AND lease_id IS NOT NULL
        LIMIT $2) AS one)
FROM json_each($1) AS asked
