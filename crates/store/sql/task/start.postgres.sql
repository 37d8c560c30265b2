-- transition: claimed -> running
-- Guarded by a live lease: nobody begins under a lease that was lost or ran out.
-- First the locks, then the clock: whoever waited for a row is judged by the time when it has it.
WITH locked AS MATERIALIZED (
    SELECT id FROM task_state WHERE id = ANY ($2::uuid[]) ORDER BY id FOR NO KEY UPDATE
), clock AS MATERIALIZED (
    SELECT coalesce($1::timestamptz, date_trunc('milliseconds', clock_timestamp())) AS now,
        windlass_xid() AS xid
    FROM (SELECT count(*) FROM locked) AS waited
)
UPDATE task_state s
SET status = 'running', from_status = s.status, event = 'start', change_id = i.change_id,
    xid = greatest(s.xid, clock.xid),
    actor = i.actor, reason = NULL, metadata = NULL, change_lease_id = s.lease_id,
    started_at = clock.now, entered_at = greatest(clock.now, s.updated_at),
    updated_at = greatest(clock.now, s.updated_at)
FROM clock, unnest($2::uuid[], $3::uuid[], $4::uuid[], $5::text[])
    AS i (id, lease_id, change_id, actor)
WHERE s.id = i.id AND s.status IN ({from:start}) AND s.lease_id = i.lease_id
  AND (s.lease_expires_at IS NULL OR s.lease_expires_at > clock.now)
RETURNING s.id
