-- How many tasks wait for a time after $1, at most $2.
SELECT count(*) FROM (
    SELECT 1 FROM task_state
    WHERE NOT ready AND status IN ({claimable}) AND profile <> 'ledger' AND run_at > $1
    LIMIT $2::bigint) AS later
