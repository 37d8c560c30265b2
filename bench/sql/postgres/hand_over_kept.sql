-- A task that begins in a worker's hands, with both rows of its history: no rule, no limit, no look
-- at who waits.
WITH spec AS (
    INSERT INTO floor_spec (id, profile, queue, payload, priority, idempotency_scope,
        request_digest, run_at, max_retries, submitted_by, created_at)
    VALUES ($1::uuid, 'job', $4::text, $2::text::jsonb, 0, '', $3::text, now(), 3, $5::text, now())
), changed AS (
    INSERT INTO floor_state (id, profile, queue, status, from_status, event, change_id, actor,
        change_lease_id, ready, order_key, run_at, attempt, retry_count, max_retries,
        release_count, lease_id, lease_expires_at, claim_id, claimed_by, claimed_at, created_at,
        started_at, entered_at, updated_at)
    VALUES ($1, 'job', $4, 'running', 'pending', 'claim', $7::uuid, $5, $6::uuid, false,
        floor(extract(epoch FROM now()) * 1000)::bigint, now(), 1, 0, 3, 0, $6,
        now() + interval '60 s', $8::uuid, $5, now(), now(), now(), now(), now())
)
INSERT INTO floor_history (xid, task_id, change_id, from_status, to_status, event, actor, lease_id,
    at)
VALUES
    (pg_current_xact_id()::text::bigint, $1, $1, NULL, 'pending', 'submit', $5, NULL, now()),
    (pg_current_xact_id()::text::bigint, $1, $7, 'pending', 'running', 'claim', $5, $6, now())
