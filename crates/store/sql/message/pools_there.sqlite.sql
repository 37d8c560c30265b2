-- Those of these pools that some agent's messages go to.
SELECT DISTINCT a.worker_type FROM agent a
WHERE a.archived_at IS NULL AND a.worker_type IN (SELECT value FROM json_each($1))
