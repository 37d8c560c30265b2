-- What the sweeper looks at; migrations/postgres/0041_delegation.up.sql says more. SQLite looks at
-- the condition of a partial index again for every entry, so it has the columns of it.

CREATE INDEX task_state_delegation
    ON task_state (last_heartbeat_at, lease_expires_at, profile, status)
    WHERE profile IN ('delegation', 'ledger')
      AND (status = 'pending' OR status = 'claimed' OR status = 'running' OR
           status = 'waiting_for_approval' OR status = 'waiting' OR status = 'retry');
