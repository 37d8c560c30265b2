-- The tasks whose end is awaited.
SELECT child_id FROM wait WHERE child_id IS NOT NULL ORDER BY child_id LIMIT $1
