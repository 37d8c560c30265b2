-- transition: claimed -> running, or none
-- Renews a live lease; the first beat of a claimed task starts it. A lease that ran out is not
-- revived: a sweep may be about to give the task to somebody else.
UPDATE task_state
SET status = 'running', from_status = status, change_id = $4,
    event = CASE WHEN status = 'claimed' THEN 'start' ELSE event END,
    actor = CASE WHEN status = 'claimed' THEN $5 ELSE actor END,
    change_lease_id = lease_id,
    lease_expires_at = :now
        + coalesce($6, CASE WHEN profile = 'delegation' THEN $7 END, {lease_ms}),
    last_heartbeat_at = :now,
    started_at = CASE WHEN status = 'claimed' THEN :now ELSE started_at END,
    entered_at = CASE WHEN status = 'claimed' THEN max(:now, updated_at) ELSE entered_at END,
    updated_at = max(:now, updated_at)
WHERE id = $2 AND status IN ({held}) AND lease_id = $3
  AND (lease_expires_at IS NULL OR lease_expires_at > :now)
RETURNING id, lease_expires_at
