-- Writes what decide() decided, for rows that this transaction has locked and read.
UPDATE task_state s
SET from_status = s.status, xid = greatest(s.xid, (SELECT windlass_xid())),
    status = i.status, event = i.event, change_id = i.change_id, actor = i.actor,
    reason = i.reason, change_lease_id = i.change_lease_id, metadata = i.metadata,
    ready = i.ready, order_key = i.order_key, run_at = i.run_at, deadline_at = i.deadline_at,
    attempt = i.attempt, retry_count = i.retry_count, release_count = i.release_count,
    lease_id = i.lease_id, lease_expires_at = i.lease_expires_at, claim_id = i.claim_id,
    claimed_by = i.claimed_by, claimed_at = i.claimed_at,
    last_heartbeat_at = i.last_heartbeat_at, approval_id = i.approval_id, result = i.result,
    error = i.error, usage = i.usage, started_at = i.started_at, entered_at = i.entered_at,
    stream_started_at = CASE WHEN i.status IN ({claimable}) THEN NULL ELSE s.stream_started_at END,
    updated_at = greatest(i.updated_at, s.updated_at)
FROM unnest(
    $1::uuid[], $2::task_status[], $3::task_event[], $4::uuid[], $5::text[], $6::text[],
    $7::uuid[], $8::jsonb[], $9::bool[], $10::bigint[], $11::timestamptz[], $12::timestamptz[],
    $13::int[], $14::int[], $15::int[], $16::uuid[], $17::timestamptz[], $18::uuid[],
    $19::text[], $20::timestamptz[], $21::timestamptz[], $22::uuid[], $23::jsonb[],
    $24::jsonb[], $25::jsonb[], $26::timestamptz[], $27::timestamptz[], $28::timestamptz[]
) AS i (id,
    status, event, change_id, actor, reason, change_lease_id, metadata, ready, order_key,
    run_at, deadline_at, attempt, retry_count, release_count, lease_id, lease_expires_at,
    claim_id, claimed_by, claimed_at, last_heartbeat_at, approval_id, result, error, usage,
    started_at, entered_at, updated_at)
WHERE s.id = i.id
RETURNING s.id
