-- Written anew as a whole; when it began, and whether it is archived, stays.
INSERT INTO agent (name, role, parent, venture, portfolio, queue, worker_type, executor,
                   retry_policy, authority, created_at, updated_at)
VALUES ($1::text, $2::text, $3::text, $4::text, $5::text, $6::text, $7::text, $8::jsonb,
        $9::jsonb, $10::jsonb, $11::timestamptz, $11::timestamptz)
ON CONFLICT (name) DO UPDATE
SET role = excluded.role, parent = excluded.parent, venture = excluded.venture,
    portfolio = excluded.portfolio, queue = excluded.queue, worker_type = excluded.worker_type,
    executor = excluded.executor, retry_policy = excluded.retry_policy,
    authority = excluded.authority, updated_at = excluded.updated_at
