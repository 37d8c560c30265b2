-- What the product keeps beside the floor's rows: a row of history a change, in the order in which
-- changes were committed, and the indexes that its own questions need (the newest tasks, who holds
-- what, whose lease ran out, a task's history). No rule, no trigger, no count: whoever keeps these
-- pays at least for these.
CREATE SEQUENCE floor_history_seq CACHE 1000;
CREATE TABLE floor_history (
    seq bigint DEFAULT nextval('floor_history_seq'), xid bigint, task_id uuid, change_id uuid,
    from_status text, to_status text, event text, actor text, reason text, lease_id uuid,
    metadata jsonb, at timestamptz
);
CREATE INDEX floor_history_task ON floor_history (task_id, seq);
CREATE INDEX floor_history_position ON floor_history (xid, seq);
CREATE INDEX floor_spec_recent ON floor_spec (created_at, id);
CREATE INDEX floor_state_holder ON floor_state (claimed_by, claim_id)
    WHERE claimed_by IS NOT NULL AND finished_at IS NULL;
CREATE INDEX floor_state_lease ON floor_state (lease_expires_at) WHERE lease_expires_at IS NOT NULL;
