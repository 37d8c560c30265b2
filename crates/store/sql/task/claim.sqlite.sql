-- transition: pending, retry -> claimed or running
-- One task of one lane (queue and profile) a run; $10 and $11 are its fresh lease and change.
-- Finding none ends the call.
UPDATE task_state
SET status = CASE WHEN $9 THEN 'running' ELSE 'claimed' END,
    from_status = status, event = 'claim', change_id = $11, actor = $6,
    reason = NULL, metadata = NULL, change_lease_id = $10, ready = 0,
    attempt = min(attempt + 1, {max_attempt}), lease_id = $10,
    lease_expires_at = CASE WHEN profile IN ({free_pass}) THEN NULL
        ELSE :now + coalesce($8, {lease_ms}) END,
    claim_id = $7,
    claimed_by = $6, claimed_at = :now, last_heartbeat_at = NULL,
    started_at = CASE WHEN $9 THEN :now ELSE started_at END,
    entered_at = max(:now, updated_at), updated_at = max(:now, updated_at)
WHERE id = (
    SELECT id FROM task_state
    WHERE ready AND queue = $2 AND profile = $3
    ORDER BY order_key, id
    LIMIT 1)
