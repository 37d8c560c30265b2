-- transition: (none) -> pending
-- $1: a test's time, else NULL; then one array a field. Items whose id or idempotency key exists
-- return no row, and the caller looks them up: the same submit twice is one task.
WITH clock AS MATERIALIZED (
    SELECT coalesce($1::timestamptz, date_trunc('milliseconds', clock_timestamp())) AS now,
        windlass_xid() AS xid
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
        $2::uuid[], $3::task_profile[], $4::text[], $5::text[], $6::jsonb[], $7::int[],
        $8::jsonb[], $9::text[], $10::text[], $11::text[], $12::text[], $13::text[],
        $14::text[], $15::text[], $16::text[], $17::text[], $18::text[], $19::text[],
        $20::uuid[], $21::uuid[], $22::text[], $23::text[], $24::text[], $25::text[],
        $26::int[], $27::jsonb[], $28::text[], $29::timestamptz[], $30::bigint[],
        $31::timestamptz[], $32::bigint[], $33::bigint[]
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
FROM spec JOIN unnest($2, $33) AS i (id, lane) ON i.id = spec.id, clock
RETURNING id
