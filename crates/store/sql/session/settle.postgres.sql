-- Nothing is left with these sessions.
UPDATE session SET settled_at = $2
WHERE id = ANY ($1::text[]::uuid[]) AND closed_at IS NOT NULL AND settled_at IS NULL
