-- Nothing is left with these sessions.
UPDATE session SET settled_at = $2
WHERE id IN (SELECT value FROM json_each($1)) AND closed_at IS NOT NULL AND settled_at IS NULL
