-- The task that a submit repeats: by its id, or by its idempotency key in its scope. The second
-- half is for tasks that have no digest.
SELECT s.id, s.request_digest, s.queue, s.payload, st.status, s.idempotency_key,
    s.profile, s.name, s.agent, s.venture, s.portfolio, s.stage, s.owner, s.caller, s.callee,
    s.pool, s.llm, s.model, s.tier, s.correlation_id, s.parent_id, s.priority, s.max_retries,
    s.tags, s.backoff, s.run_at, s.deadline_at, s.created_at
FROM task_spec s
JOIN task_state st ON st.id = s.id
WHERE s.id = $1::uuid
UNION ALL
SELECT s.id, s.request_digest, s.queue, s.payload, st.status, s.idempotency_key,
    s.profile, s.name, s.agent, s.venture, s.portfolio, s.stage, s.owner, s.caller, s.callee,
    s.pool, s.llm, s.model, s.tier, s.correlation_id, s.parent_id, s.priority, s.max_retries,
    s.tags, s.backoff, s.run_at, s.deadline_at, s.created_at
FROM task_spec s
JOIN task_state st ON st.id = s.id
WHERE s.idempotency_scope = $2::text AND s.idempotency_key = $3::text AND s.id <> $1::uuid
