-- transition: pending, retry -> claimed or running
-- One lane (queue and profile), from the floor upwards (or from what this very transaction has
-- ripened, should that lie below it), skipping rows that others hold. $6 and $7
-- name the call: what it already took in other lanes counts against the limit $4, and later rows
-- take the later ids of $10 and $11. What it took in another transaction was its answer: it gets no
-- more, unless $12 says that this is the same call's second look.
WITH clock AS MATERIALIZED (
    SELECT coalesce($1::timestamptz, date_trunc('milliseconds', clock_timestamp())) AS now,
        windlass_xid() AS xid
), earlier AS MATERIALIZED (
    SELECT count(*) AS n, coalesce(bool_or(xmin <> pg_current_xact_id()::xid), FALSE) AS repeated
    FROM task_state
    WHERE claimed_by = $6::text AND claim_id = $7::uuid AND finished_at IS NULL
), picked AS MATERIALIZED (
    SELECT id FROM task_state
    WHERE ready AND queue = $2::text AND profile = $3::task_profile
      AND order_key >= least($5::bigint,
          nullif(current_setting('windlass.ripened', true), '')::bigint)
    ORDER BY order_key, id
    LIMIT (SELECT CASE WHEN repeated AND NOT $12::bool THEN 0 ELSE greatest($4::bigint - n, 0) END
           FROM earlier)
    FOR UPDATE SKIP LOCKED
), numbered AS MATERIALIZED (
    SELECT id, (SELECT n FROM earlier) + row_number() OVER () AS n FROM picked
)
UPDATE task_state s
SET status = CASE WHEN $9::bool THEN 'running' ELSE 'claimed' END::task_status,
    from_status = s.status, event = 'claim', change_id = ($11::uuid[])[i.n], actor = $6,
    reason = NULL, metadata = NULL, change_lease_id = ($10::uuid[])[i.n], ready = false,
    xid = greatest(s.xid, clock.xid), attempt = least(s.attempt + 1, {max_attempt}),
    lease_id = ($10::uuid[])[i.n],
    lease_expires_at = CASE WHEN s.profile IN ({free_pass}) THEN NULL
        ELSE clock.now + coalesce($8::bigint, {lease_ms}) * interval '1 ms' END,
    claim_id = $7,
    claimed_by = $6, claimed_at = clock.now, last_heartbeat_at = NULL,
    started_at = CASE WHEN $9 THEN clock.now ELSE s.started_at END,
    entered_at = greatest(clock.now, s.updated_at),
    updated_at = greatest(clock.now, s.updated_at)
FROM numbered i, clock
WHERE s.id = i.id
RETURNING s.order_key
