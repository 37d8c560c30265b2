-- What the product keeps beside the floor's rows: a row of history a change, and the indexes that
-- its own questions need (the newest tasks, who holds what, whose lease ran out, a task's history).
-- No rule, no trigger, no count: whoever keeps these pays at least for these.
CREATE TABLE floor_history (
    seq INTEGER PRIMARY KEY, task_id TEXT, change_id TEXT, from_status TEXT, to_status TEXT,
    event TEXT, actor TEXT, reason TEXT, lease_id TEXT, metadata TEXT, at INTEGER
);
CREATE INDEX floor_history_task ON floor_history (task_id, seq);
CREATE INDEX floor_spec_recent ON floor_spec (created_at, id);
CREATE INDEX floor_state_holder ON floor_state (claimed_by, claim_id)
    WHERE claimed_by IS NOT NULL AND finished_at IS NULL;
CREATE INDEX floor_state_lease ON floor_state (lease_expires_at) WHERE lease_expires_at IS NOT NULL;
