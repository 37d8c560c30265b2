INSERT INTO floor_spec (id, profile, queue, payload, priority, idempotency_scope, request_digest,
    run_at, max_retries, submitted_by, created_at)
VALUES (?1, 'job', ?2, ?3, 0, '', ?4, ?5, 3, ?6, ?5)
