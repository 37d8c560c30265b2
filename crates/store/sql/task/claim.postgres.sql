-- transition: pending, retry -> claimed or running
-- Of each lane $9 at most its quota $11, from the key $10 to $13, skipping rows that others hold.
-- Rows that were taken are followed by the keys that come next in the lanes for which $12 asks.
-- $2 and $3 name the call: later rows take the later ids of $6 and $7. What it took in another
-- transaction was its answer: it gets no more, unless $8 says that this is its next round.
WITH clock AS MATERIALIZED (
    SELECT coalesce($1::timestamptz, date_trunc('milliseconds', clock_timestamp())) AS now,
        windlass_xid() AS xid
), earlier AS MATERIALIZED (
    SELECT count(*) AS n, coalesce(bool_or(xmin <> pg_current_xact_id()::xid), FALSE) AS repeated
    FROM task_state
    WHERE claimed_by = $2::text AND claim_id = $3::uuid AND finished_at IS NULL
), picked AS MATERIALIZED (
    SELECT t.id
    FROM earlier e, unnest($9::bigint[], $10::bigint[], $11::bigint[], $13::bigint[])
            AS l (lane, from_key, quota, until_key),
        LATERAL (
            SELECT id FROM task_state
            WHERE ready AND lane = l.lane AND order_key BETWEEN l.from_key AND l.until_key
            ORDER BY order_key, id
            LIMIT l.quota
            FOR UPDATE SKIP LOCKED) t
    WHERE $8::bool OR NOT e.repeated
), numbered AS MATERIALIZED (
    SELECT id, (SELECT n FROM earlier) + row_number() OVER () AS n FROM picked
)
, next AS MATERIALIZED (
    SELECT l.lane, n.order_key
    FROM unnest($9::bigint[], $10::bigint[], $11::bigint[], $12::bool[], $13::bigint[])
            AS l (lane, from_key, quota, peeks, until_key),
        LATERAL (
            (SELECT order_key FROM task_state
             WHERE ready AND lane = l.lane AND order_key BETWEEN l.from_key AND l.until_key
             ORDER BY order_key, id
             OFFSET l.quota
             LIMIT 1)
            UNION ALL
            (SELECT order_key FROM task_state
             WHERE ready AND lane = l.lane AND order_key > l.until_key
             ORDER BY order_key, id
             LIMIT 1)
            LIMIT 1) n
    WHERE l.peeks
), taken AS (
UPDATE task_state s
SET status = CASE WHEN $5::bool THEN 'running' ELSE 'claimed' END::task_status,
    from_status = s.status, event = 'claim', change_id = ($7::uuid[])[i.n], actor = $2,
    reason = NULL, metadata = NULL, change_lease_id = ($6::uuid[])[i.n], ready = false,
    xid = greatest(s.xid, clock.xid), attempt = least(s.attempt + 1, {max_attempt}),
    lease_id = ($6::uuid[])[i.n],
    lease_expires_at = CASE WHEN s.profile IN ({free_pass}) THEN NULL
        ELSE clock.now + coalesce($4::bigint, {lease_ms}) * interval '1 ms' END,
    claim_id = $3,
    claimed_by = $2, claimed_at = clock.now, last_heartbeat_at = NULL,
    started_at = CASE WHEN $5 THEN clock.now ELSE s.started_at END,
    entered_at = greatest(clock.now, s.updated_at),
    updated_at = greatest(clock.now, s.updated_at)
FROM numbered i, clock
WHERE s.id = i.id
RETURNING s.lane, s.order_key
)
SELECT lane, order_key, TRUE FROM taken
UNION ALL
SELECT lane, order_key, FALSE FROM next
