-- transition: claimed, running -> completed
-- Guarded by the lease: a worker whose lease was taken over changes no row. An expired lease that
-- nobody took still counts: a result that comes late and hurts nobody is kept. What an attempt took
-- is added to what earlier ones did by the domain: such a row is left to the cold path,
-- and so is a delegation, whose caller is told.
UPDATE task_state
SET status = 'completed', from_status = status, event = 'complete', change_id = $4,
    actor = $5, reason = $7, change_lease_id = lease_id,
    metadata = CASE WHEN $8 IS NOT NULL THEN json_object('usage', json($8)) END,
    usage = coalesce($8, usage),
    lease_id = NULL, lease_expires_at = NULL, result = $6, error = NULL,
    entered_at = max(:now, updated_at), updated_at = max(:now, updated_at)
WHERE id = $2 AND status IN ({from:complete}) AND lease_id = $3
    AND ($8 IS NULL OR usage IS NULL) AND profile <> 'delegation'
