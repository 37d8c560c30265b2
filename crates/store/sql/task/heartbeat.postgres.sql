-- transition: claimed -> running, or none
-- Renews a live lease; the first beat of a claimed task starts it. A lease that ran out is not
-- revived: a sweep may be about to give the task to somebody else.
-- First the locks, then the clock: whoever waited for a row is judged by the time when it has it.
WITH locked AS MATERIALIZED (
    SELECT id FROM task_state WHERE id = ANY ($2::uuid[]) ORDER BY id FOR NO KEY UPDATE
), clock AS MATERIALIZED (
    SELECT coalesce($1::timestamptz, date_trunc('milliseconds', clock_timestamp())) AS now,
        windlass_xid() AS xid
    FROM (SELECT count(*) FROM locked) AS waited
)
UPDATE task_state s
SET status = 'running', from_status = s.status, change_id = i.change_id,
    xid = greatest(s.xid, clock.xid),
    event = CASE WHEN s.status = 'claimed' THEN 'start' ELSE s.event END::task_event,
    actor = CASE WHEN s.status = 'claimed' THEN i.actor ELSE s.actor END,
    change_lease_id = s.lease_id,
    lease_expires_at = clock.now + coalesce(i.lease_ms,
        CASE WHEN s.profile = 'delegation' THEN i.stuck_ms END, {lease_ms}) * interval '1 ms',
    last_heartbeat_at = clock.now,
    started_at = CASE WHEN s.status = 'claimed' THEN clock.now ELSE s.started_at END,
    entered_at = CASE WHEN s.status = 'claimed' THEN greatest(clock.now, s.updated_at)
        ELSE s.entered_at END,
    updated_at = greatest(clock.now, s.updated_at)
FROM clock, unnest($2::uuid[], $3::uuid[], $4::uuid[], $5::text[], $6::bigint[], $7::bigint[])
    AS i (id, lease_id, change_id, actor, lease_ms, stuck_ms)
WHERE s.id = i.id AND s.status IN ({held}) AND s.lease_id = i.lease_id
  AND (s.lease_expires_at IS NULL OR s.lease_expires_at > clock.now)
RETURNING s.id, s.lease_expires_at
