WITH i AS MATERIALIZED (
    SELECT id, payload::jsonb AS payload, digest, now() AS now
    FROM unnest($1::uuid[], $2::text[], $3::text[]) AS i (id, payload, digest)
), spec AS (
    INSERT INTO floor_spec (id, profile, queue, payload, priority, idempotency_scope,
        request_digest, run_at, max_retries, submitted_by, created_at)
    SELECT id, 'job', $4::text, payload, 0, '', digest, now, 3, $5::text, now FROM i
), changed AS (
    INSERT INTO floor_state (id, profile, queue, status, event, change_id, actor, ready,
        order_key, run_at, attempt, retry_count, max_retries, release_count, created_at,
        entered_at, updated_at)
    SELECT id, 'job', $4, 'pending', 'submit', id, $5, true,
        floor(extract(epoch FROM now) * 1000)::bigint, now, 0, 0, 3, 0, now, now, now
    FROM i
    RETURNING id, change_id, actor, updated_at
)
INSERT INTO floor_history (xid, task_id, change_id, to_status, event, actor, at)
SELECT pg_current_xact_id()::text::bigint, id, change_id, 'pending', 'submit', actor, updated_at
FROM changed
