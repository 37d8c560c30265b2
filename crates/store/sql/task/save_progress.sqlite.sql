-- Keeps what the holder told; absent means keep. Guarded by the lease: matching suffices, because
-- what was computed before the lease was lost hurts nobody until somebody else has it. $6 is for
-- PostgreSQL, which looks at what comes without it.
INSERT INTO task_progress (task_id, checkpoint, progress, updated_at)
SELECT id, $4, $5, :now FROM task_state WHERE id = $2 AND lease_id = $3
ON CONFLICT (task_id) DO UPDATE
SET checkpoint = coalesce(excluded.checkpoint, checkpoint),
    progress = coalesce(excluded.progress, progress),
    updated_at = excluded.updated_at
RETURNING task_id
