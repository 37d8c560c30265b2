-- How many tasks could start at $1: what is ready, or due and not ripened yet; at most $2 of each.
SELECT
    (SELECT count(*) FROM (SELECT 1 FROM task_state WHERE ready LIMIT $2::bigint) AS ready)
    + (SELECT count(*) FROM (
        SELECT 1 FROM task_state
        WHERE NOT ready AND status IN ({claimable}) AND profile <> 'ledger' AND run_at <= $1
        LIMIT $2::bigint) AS due)
