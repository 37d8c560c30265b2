-- What agents give to their tasks.
SELECT a.name, a.role, a.queue, a.venture, coalesce(v.portfolio, a.portfolio), a.retry_policy
FROM agent a LEFT JOIN venture v ON v.name = a.venture
WHERE a.name IN (SELECT value FROM json_each($1))
