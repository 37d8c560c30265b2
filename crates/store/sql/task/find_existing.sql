-- The task that a submit repeats: by its id, or by its idempotency key in its scope.
SELECT s.id, s.request_digest, s.queue, s.payload, st.status, s.idempotency_key
FROM task_spec s
JOIN task_state st ON st.id = s.id
WHERE s.id = $1::uuid
UNION ALL
SELECT s.id, s.request_digest, s.queue, s.payload, st.status, s.idempotency_key
FROM task_spec s
JOIN task_state st ON st.id = s.id
WHERE s.idempotency_scope = $2::text AND s.idempotency_key = $3::text AND s.id <> $1::uuid
