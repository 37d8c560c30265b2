-- transition: (none) -> pending
-- $1: a test's time, else NULL. $2 to $7: the lock of limits that is shared, as it is in
-- limit/share_or_fail, so that a lone submit is one statement and one answer; NULL: none, or it is
-- had already. The counts are read inside, after the lock, by a statement that sees all that was
-- committed by then. Then one array a field. Items whose id or idempotency key exists return no
-- row, and the caller looks them up: the same submit twice is one task.
WITH shared AS MATERIALIZED (
    SELECT CASE WHEN $2::int IS NULL THEN TRUE WHEN windlass_share_or_fail(
        $2, $3::int, $4::text[], $5::text[]::bigint[], $6::text[]::bigint[])
        THEN CASE WHEN $7::bigint IS NULL THEN TRUE ELSE windlass_rules_stand($7) END END AS fits
), clock AS MATERIALIZED (
    SELECT coalesce($1::timestamptz, date_trunc('milliseconds', clock_timestamp())) AS now,
        windlass_xid() AS xid
    FROM shared WHERE fits
), spec AS (
    INSERT INTO task_spec (
        id, profile, name, queue, payload, priority, tags, agent, venture, portfolio, stage,
        owner, caller, callee, pool, llm, model, tier, parent_id, replay_of, correlation_id,
        idempotency_scope, idempotency_key, request_digest, max_retries, backoff, submitted_by,
        run_at, deadline_at, created_at)
    SELECT
        i.id, i.profile, i.name, i.queue, i.payload, i.priority, i.tags, i.agent, i.venture,
        i.portfolio, i.stage, i.owner, i.caller, i.callee, i.pool, i.llm, i.model, i.tier,
        i.parent_id, i.replay_of, i.correlation_id, i.idempotency_scope, i.idempotency_key,
        i.request_digest, i.max_retries, i.backoff, i.submitted_by,
        coalesce(i.run_at, clock.now + i.delay_ms * interval '1 ms'),
        coalesce(i.deadline_at, clock.now + i.deadline_ms * interval '1 ms'), clock.now
    FROM clock, unnest(
        $8::uuid[], $9::task_profile[], $10::text[], $11::text[], $12::jsonb[], $13::int[],
        $14::jsonb[], $15::text[], $16::text[], $17::text[], $18::text[], $19::text[],
        $20::text[], $21::text[], $22::text[], $23::text[], $24::text[], $25::text[],
        $26::uuid[], $27::uuid[], $28::text[], $29::text[], $30::text[], $31::text[],
        $32::int[], $33::jsonb[], $34::text[], $35::timestamptz[], $36::bigint[],
        $37::timestamptz[], $38::bigint[], $39::bigint[]
    ) AS i (
        id, profile, name, queue, payload, priority, tags, agent, venture, portfolio, stage,
        owner, caller, callee, pool, llm, model, tier, parent_id, replay_of, correlation_id,
        idempotency_scope, idempotency_key, request_digest, max_retries, backoff, submitted_by,
        run_at, delay_ms, deadline_at, deadline_ms, lane)
    ON CONFLICT DO NOTHING
    RETURNING id, profile, queue, priority, run_at, deadline_at, max_retries, submitted_by,
        created_at
)
INSERT INTO task_state (id, profile, queue, lane, change_id, xid, actor, ready, order_key,
    run_at, deadline_at, max_retries, created_at, entered_at, updated_at)
SELECT spec.id, profile, queue, i.lane, spec.id, clock.xid, submitted_by,
    run_at <= created_at AND profile <> 'ledger',
    windlass_order_key(priority, run_at), run_at, deadline_at, max_retries, created_at,
    created_at, created_at
FROM spec JOIN unnest($8, $39) AS i (id, lane) ON i.id = spec.id, clock
RETURNING id
