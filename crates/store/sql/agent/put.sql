-- Written anew as a whole; when it began stays.
INSERT INTO agent (name, retry_policy, created_at, updated_at)
VALUES ($1::text, $2::jsonb, $3::timestamptz, $3::timestamptz)
ON CONFLICT (name) DO UPDATE
SET retry_policy = excluded.retry_policy, updated_at = excluded.updated_at
RETURNING name, retry_policy, created_at, updated_at
