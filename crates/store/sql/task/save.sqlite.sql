-- Writes what decide() decided, for rows that this transaction has read.
UPDATE task_state
SET from_status = status,
    status = $2, event = $3, change_id = $4, actor = $5, reason = $6, change_lease_id = $7,
    metadata = $8, ready = $9, order_key = $10, run_at = $11, deadline_at = $12, attempt = $13,
    retry_count = $14, release_count = $15, lease_id = $16, lease_expires_at = $17,
    claim_id = $18, claimed_by = $19, claimed_at = $20, last_heartbeat_at = $21,
    approval_id = $22, result = $23, error = $24, usage = $25, started_at = $26,
    entered_at = $27,
    stream_started_at = CASE WHEN $2 IN ({claimable}) THEN NULL ELSE stream_started_at END,
    updated_at = max($28, updated_at)
WHERE id = $1
