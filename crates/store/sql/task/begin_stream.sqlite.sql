-- transition: claimed -> running, or none
-- The first delta of an attempt: a heartbeat that also says since when text is coming.
UPDATE task_state
SET status = 'running', from_status = status, change_id = $4,
    event = CASE WHEN status = 'claimed' THEN 'start' ELSE event END,
    actor = CASE WHEN status = 'claimed' THEN claimed_by ELSE actor END,
    change_lease_id = lease_id,
    lease_expires_at = :now + coalesce($5, {lease_ms}),
    last_heartbeat_at = :now,
    stream_started_at = :now,
    started_at = CASE WHEN status = 'claimed' THEN :now ELSE started_at END,
    entered_at = CASE WHEN status = 'claimed' THEN max(:now, updated_at) ELSE entered_at END,
    updated_at = max(:now, updated_at)
WHERE id = $2 AND status IN ({held}) AND lease_id = $3
  AND (lease_expires_at IS NULL OR lease_expires_at > :now)
RETURNING id, attempt, lease_expires_at, last_heartbeat_at
