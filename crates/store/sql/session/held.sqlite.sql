-- How many tasks each of the sessions $1 holds, if it holds any.
SELECT claimed_by, count(*) FROM task_state
WHERE claimed_by IN (SELECT value FROM json_each($1)) AND finished_at IS NULL
  AND lease_id IS NOT NULL
GROUP BY claimed_by
