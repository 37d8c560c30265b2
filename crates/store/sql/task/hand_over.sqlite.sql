-- transition: pending -> claimed or running
-- The task $2 that this transaction has submitted, if nothing else waits in the lanes $7; $3 to $6
-- are the claim's own, $8 and $9 its fresh lease and change.
UPDATE task_state
SET status = CASE WHEN $6 THEN 'running' ELSE 'claimed' END,
    from_status = status, event = 'claim', change_id = $9, actor = $3,
    reason = NULL, metadata = NULL, change_lease_id = $8, ready = 0,
    attempt = min(attempt + 1, {max_attempt}), lease_id = $8,
    lease_expires_at = CASE WHEN profile IN ({free_pass}) THEN NULL
        ELSE :now + coalesce($5, {lease_ms}) END,
    claim_id = $4,
    claimed_by = $3, claimed_at = :now, last_heartbeat_at = NULL,
    started_at = CASE WHEN $6 THEN :now ELSE started_at END,
    entered_at = max(:now, updated_at), updated_at = max(:now, updated_at)
WHERE id = $2 AND ready AND NOT EXISTS (
    SELECT 1 FROM json_each($7) AS l
    WHERE EXISTS (SELECT 1 FROM task_state WHERE ready AND lane = l.value AND id <> $2))
