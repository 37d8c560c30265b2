-- What the sweeper looks at: delegations in flight, by their last beat, and nothing of what has
-- ended. A job is not in it, and no statement that changes a job's last beat was free of other
-- indexes before: its lease changes with it.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

CREATE INDEX task_state_delegation ON task_state (last_heartbeat_at)
    WHERE profile IN ('delegation', 'ledger')
      AND status IN ('pending', 'claimed', 'running', 'waiting_for_approval', 'waiting', 'retry');
