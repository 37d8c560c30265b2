-- Tasks whose time has come move from the due index to the ready index; a bounded number, so
-- that a claim after a long pause stays short. No state changes.
-- The claim of the same flight must look from the first of them on, although its floor is higher:
-- it finds the place in a setting of this transaction.
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
), ripened AS (
    UPDATE task_state s
    SET ready = true, from_status = s.status, change_id = gen_random_uuid(),
        xid = greatest(s.xid, clock.xid), updated_at = greatest(clock.now, s.updated_at)
    FROM due, clock
    WHERE s.id = due.id
    RETURNING s.queue, s.profile, s.order_key
)
SELECT queue, profile, order_key,
    set_config('windlass.ripened', (min(order_key) OVER ())::text, true)
FROM ripened
