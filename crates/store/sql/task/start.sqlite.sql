-- transition: claimed -> running
-- Guarded by a live lease: nobody begins under a lease that was lost or ran out.
UPDATE task_state
SET status = 'running', from_status = status, event = 'start', change_id = $4,
    actor = $5, reason = NULL, metadata = NULL, change_lease_id = lease_id,
    started_at = :now, entered_at = max(:now, updated_at), updated_at = max(:now, updated_at)
WHERE id = $2 AND status IN ({from:start}) AND lease_id = $3
  AND (lease_expires_at IS NULL OR lease_expires_at > :now)
