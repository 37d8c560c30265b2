-- Tasks whose time has come move from the due index to the ready index; a bounded number, so
-- that a claim after a long pause stays short. No state changes.
UPDATE task_state
SET ready = 1, from_status = status, change_id = lower(hex(randomblob(16))),
    updated_at = max(:now, updated_at)
WHERE id IN (
    SELECT id FROM task_state
    WHERE NOT ready AND status IN ({claimable}) AND profile <> 'ledger' AND run_at <= :now
    ORDER BY run_at
    LIMIT $2)
RETURNING lane, order_key
