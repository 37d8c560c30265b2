-- Keeps what the holder told; absent means keep. Guarded by the lease: matching suffices, because
-- what was computed before the lease was lost hurts nobody until somebody else has it.
WITH clock AS MATERIALIZED (
    SELECT coalesce($1::timestamptz, date_trunc('milliseconds', clock_timestamp())) AS now
)
INSERT INTO task_progress AS p (task_id, checkpoint, progress, change_id, updated_at)
SELECT s.id, i.checkpoint, i.progress, i.change_id, clock.now
FROM clock, unnest($2::uuid[], $3::uuid[], $4::jsonb[], $5::jsonb[], $6::uuid[])
    AS i (id, lease_id, checkpoint, progress, change_id)
JOIN task_state s ON s.id = i.id AND s.lease_id = i.lease_id
ON CONFLICT (task_id) DO UPDATE
SET checkpoint = coalesce(excluded.checkpoint, p.checkpoint),
    progress = coalesce(excluded.progress, p.progress),
    change_id = excluded.change_id, updated_at = excluded.updated_at
RETURNING task_id
