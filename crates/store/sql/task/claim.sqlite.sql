-- transition: pending, retry -> claimed or running
-- The head of the lane $6; $7 and $8 are its fresh lease and change. Finding none ends the lane.
UPDATE task_state
SET status = CASE WHEN $5 THEN 'running' ELSE 'claimed' END,
    from_status = status, event = 'claim', change_id = $8, actor = $2,
    reason = NULL, metadata = NULL, change_lease_id = $7, ready = 0,
    attempt = min(attempt + 1, {max_attempt}), lease_id = $7,
    lease_expires_at = CASE WHEN profile IN ({free_pass}) THEN NULL
        ELSE :now + coalesce($4, {lease_ms}) END,
    claim_id = $3,
    claimed_by = $2, claimed_at = :now, last_heartbeat_at = NULL,
    started_at = CASE WHEN $5 THEN :now ELSE started_at END,
    entered_at = max(:now, updated_at), updated_at = max(:now, updated_at)
WHERE id = (
    SELECT id FROM task_state
    WHERE ready AND lane = $6
    ORDER BY order_key, id
    LIMIT 1)
