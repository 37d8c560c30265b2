-- transition: pending -> claimed or running
-- The task $2 that this transaction has submitted, if nothing else waits in its lane (queue and
-- profile); $5 to $8 are the claim's own, $9 and $10 its fresh lease and change.
UPDATE task_state
SET status = CASE WHEN $8 THEN 'running' ELSE 'claimed' END,
    from_status = status, event = 'claim', change_id = $10, actor = $5,
    reason = NULL, metadata = NULL, change_lease_id = $9, ready = 0,
    attempt = min(attempt + 1, {max_attempt}), lease_id = $9,
    lease_expires_at = CASE WHEN profile IN ({free_pass}) THEN NULL
        ELSE :now + coalesce($7, {lease_ms}) END,
    claim_id = $6,
    claimed_by = $5, claimed_at = :now, last_heartbeat_at = NULL,
    started_at = CASE WHEN $8 THEN :now ELSE started_at END,
    entered_at = max(:now, updated_at), updated_at = max(:now, updated_at)
WHERE id = $2 AND ready AND NOT EXISTS (
    SELECT 1 FROM task_state
    WHERE ready AND queue = $3 AND profile = $4 AND id <> $2)
