-- transition: (none) -> pending
-- One item a run; a trigger begins the task's state. An item whose id or idempotency key exists
-- changes nothing, and the caller looks it up: the same submit twice is one task.
INSERT INTO task_spec (
    id, profile, name, queue, payload, priority, tags, agent, venture, portfolio, stage, owner,
    caller, callee, pool, llm, model, tier, parent_id, replay_of, correlation_id,
    idempotency_scope, idempotency_key, request_digest, max_retries, backoff, submitted_by,
    run_at, deadline_at, created_at)
SELECT
    $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21,
    $22, $23, $24, $25, $26, $27, $28,
    coalesce($29, :now + $30), coalesce($31, :now + $32), :now
WHERE $24 IS NULL OR NOT EXISTS (
    SELECT 1 FROM task_spec
    WHERE idempotency_scope = $23 AND idempotency_key = $24)
ON CONFLICT (id) DO NOTHING
