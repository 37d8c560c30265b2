-- What the sessions $1 hold, longest first, at most $2.
SELECT id, claimed_by, claimed_at FROM task_state
WHERE claimed_by = ANY ($1::text[]) AND finished_at IS NULL AND lease_id IS NOT NULL
ORDER BY claimed_at, id
LIMIT $2::bigint
