-- transition: claimed, running -> completed
-- Guarded by the lease: a worker whose lease was taken over changes no row. An expired lease that
-- nobody took still counts: a result that comes late and hurts nobody is kept. What an attempt took
-- is added to what earlier ones did by the domain: such a row is left to the cold path,
-- and so is a delegation, whose caller is told.
WITH clock AS MATERIALIZED (
    SELECT coalesce($1::timestamptz, date_trunc('milliseconds', clock_timestamp())) AS now,
        windlass_xid() AS xid
)
UPDATE task_state s
SET status = 'completed', from_status = s.status, event = 'complete', change_id = i.change_id,
    xid = greatest(s.xid, clock.xid),
    actor = i.actor, reason = i.reason, change_lease_id = s.lease_id,
    metadata = CASE WHEN i.usage IS NOT NULL THEN jsonb_build_object('usage', i.usage) END,
    usage = coalesce(i.usage, s.usage),
    lease_id = NULL, lease_expires_at = NULL, result = i.result, error = NULL,
    entered_at = greatest(clock.now, s.updated_at),
    updated_at = greatest(clock.now, s.updated_at)
FROM clock, unnest($2::uuid[], $3::uuid[], $4::uuid[], $5::text[], $6::jsonb[], $7::text[],
    $8::jsonb[]) AS i (id, lease_id, change_id, actor, result, reason, usage)
WHERE s.id = i.id AND s.status IN ({from:complete}) AND s.lease_id = i.lease_id
    AND (i.usage IS NULL OR s.usage IS NULL) AND s.profile <> 'delegation'
RETURNING s.id, s.lane
