-- Guarded by where it stood.
UPDATE trouble SET status = $3::text, assignee = $4::text, updated_at = $5::timestamptz,
    closed_at = $6::timestamptz, resolved_by_task = $7::uuid
WHERE task_id = $1::uuid AND status = $2::text
RETURNING task_id
