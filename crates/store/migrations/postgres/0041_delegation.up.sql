-- What the sweeper looks at: delegations in flight, and nothing of what has ended. Its columns and
-- condition name only what other indexes have already, so no update gets more to do for a job.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

CREATE INDEX task_state_delegation ON task_state (id)
    WHERE profile IN ('delegation', 'ledger')
      AND status IN ('pending', 'claimed', 'running', 'waiting_for_approval', 'waiting', 'retry');
