-- Those of these agents that read their inbox.
SELECT a.name FROM agent a
WHERE a.archived_at IS NULL AND a.name = ANY ($1::text[])
