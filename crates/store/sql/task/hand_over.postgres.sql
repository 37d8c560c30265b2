-- transition: (none) -> pending -> claimed or running
-- One task that somebody waits for: submitted to the lane $33, and handed over at once if nothing
-- waits in the lanes $46, each from its key $47 upwards. The history shows both. Where an older
-- task waits it is only submitted, and whoever waits is told to look. $34 to $37 are the claim's
-- own, $38 and $39 its fresh lease and change, $40 to $45 the lock of limits, as in task/submit.
-- An id or idempotency key that exists returns no row.
WITH shared AS MATERIALIZED (
    SELECT CASE WHEN $40::int IS NULL THEN TRUE WHEN windlass_share_or_fail(
        $40, $41::int, $42::text[], $43::text[]::bigint[], $44::text[]::bigint[])
        THEN CASE WHEN $45::bigint IS NULL THEN TRUE ELSE windlass_rules_stand($45) END END AS fits
), clock AS MATERIALIZED (
    SELECT coalesce($1::timestamptz, date_trunc('milliseconds', clock_timestamp())) AS now,
        windlass_xid() AS xid,
        NOT EXISTS (
            SELECT 1
            FROM unnest($46::bigint[], $47::bigint[]) AS l (lane, from_key),
                LATERAL (
                    SELECT 1 FROM task_state
                    WHERE ready AND lane = l.lane AND order_key >= l.from_key
                    LIMIT 1) t) AS given
    FROM shared WHERE fits
), spec AS (
    INSERT INTO task_spec (
        id, profile, name, queue, payload, priority, tags, agent, venture, portfolio, stage,
        owner, caller, callee, pool, llm, model, tier, parent_id, replay_of, correlation_id,
        idempotency_scope, idempotency_key, request_digest, max_retries, backoff, submitted_by,
        run_at, deadline_at, created_at)
    SELECT
        $2::uuid, $3::task_profile, $4::text, $5::text, $6::jsonb, $7::int, $8::jsonb,
        $9::text, $10::text, $11::text, $12::text, $13::text, $14::text, $15::text,
        $16::text, $17::text, $18::text, $19::text, $20::uuid, $21::uuid, $22::text,
        $23::text, $24::text, $25::text, $26::int,
        $27::jsonb, $28::text,
        coalesce($29::timestamptz, clock.now + $30::bigint * interval '1 ms'),
        coalesce($31::timestamptz, clock.now + $32::bigint * interval '1 ms'), clock.now
    FROM clock
    ON CONFLICT DO NOTHING
    RETURNING profile, run_at, deadline_at
)
INSERT INTO task_state (id, profile, queue, lane, status, from_status, event, change_id, xid, actor,
    change_lease_id, ready, order_key, run_at, deadline_at, attempt, max_retries, lease_id,
    lease_expires_at, claim_id, claimed_by, claimed_at, created_at, started_at, entered_at,
    updated_at)
SELECT $2, profile, $5, $33::bigint,
    CASE WHEN NOT given THEN 'pending' WHEN $37::bool THEN 'running' ELSE 'claimed'
        END::task_status,
    CASE WHEN given THEN 'pending'::task_status END,
    CASE WHEN given THEN 'claim' ELSE 'submit' END::task_event,
    CASE WHEN given THEN $39::uuid ELSE $2 END, xid,
    CASE WHEN given THEN $34::text ELSE $28 END,
    CASE WHEN given THEN $38::uuid END, NOT given,
    windlass_order_key($7, run_at), run_at, deadline_at,
    CASE WHEN given THEN 1 ELSE 0 END, $26, CASE WHEN given THEN $38 END,
    CASE WHEN given AND profile NOT IN ({free_pass})
        THEN now + coalesce($36::bigint, {lease_ms}) * interval '1 ms' END,
    CASE WHEN given THEN $35::uuid END, CASE WHEN given THEN $34 END,
    CASE WHEN given THEN now END, now, CASE WHEN given AND $37 THEN now END, now, now
FROM spec, clock
RETURNING status, created_at, lease_expires_at
