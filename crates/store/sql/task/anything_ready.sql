-- Whether anything could start at $1: what is ready, or due and not ripened yet.
SELECT EXISTS (SELECT 1 FROM task_state WHERE ready)
    OR EXISTS (
        SELECT 1 FROM task_state
        WHERE NOT ready AND status IN ({claimable}) AND profile <> 'ledger' AND run_at <= $1)
