-- Tasks whose time has come move from the due index to the ready index; a bounded number, so
-- that a claim after a long pause stays short. No state changes.
WITH clock AS MATERIALIZED (
    SELECT coalesce($1::timestamptz, date_trunc('milliseconds', clock_timestamp())) AS now,
        windlass_xid() AS xid
), due AS MATERIALIZED (
    SELECT id FROM task_state
    WHERE NOT ready AND status IN ({claimable}) AND profile <> 'ledger'
      AND run_at <= (SELECT now FROM clock)
    ORDER BY run_at
    LIMIT $2::bigint
    FOR UPDATE SKIP LOCKED
)
UPDATE task_state s
SET ready = true, from_status = s.status, change_id = gen_random_uuid(),
    xid = greatest(s.xid, clock.xid), updated_at = greatest(clock.now, s.updated_at)
FROM due, clock
WHERE s.id = due.id
RETURNING s.lane, s.order_key
