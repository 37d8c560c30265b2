-- Those of these agents that read their inbox.
SELECT a.name FROM agent a
WHERE a.archived_at IS NULL AND a.name IN (SELECT value FROM json_each($1))
