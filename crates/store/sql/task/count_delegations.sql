-- How many delegations have not ended.
SELECT count(*) FROM task_state st
WHERE st.profile IN ('delegation', 'ledger') AND st.status IN ({living})
