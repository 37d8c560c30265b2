-- How many tasks each of the sessions $1 holds, counted to $2.
SELECT asked.id, held.many
FROM unnest($1::text[]) AS asked (id)
CROSS JOIN LATERAL (
    SELECT count(*) AS many FROM (
        SELECT 1 FROM task_state
        WHERE claimed_by = asked.id AND finished_at IS NULL AND lease_id IS NOT NULL
        LIMIT $2::bigint) AS one) AS held
