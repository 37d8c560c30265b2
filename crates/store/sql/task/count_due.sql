-- How many tasks wait for their time.
SELECT status, count(*) FROM task_state
WHERE NOT ready AND status IN ({claimable}) AND profile <> 'ledger'
GROUP BY status
