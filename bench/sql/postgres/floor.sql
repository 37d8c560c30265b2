-- The floor: the product's columns, the keys that the work itself needs, and nothing else. It is
-- written out here, and not copied from the schema, so that it stays put when the schema moves.
CREATE TABLE floor_spec (
    id uuid PRIMARY KEY, profile text, name text, queue text, payload jsonb, priority int,
    tags jsonb, agent text, venture text, portfolio text, stage text, owner text, caller text,
    callee text, pool text, llm text, model text, tier text, parent_id uuid, replay_of uuid,
    correlation_id text, idempotency_scope text, idempotency_key text, request_digest text,
    run_at timestamptz, deadline_at timestamptz, max_retries int, backoff jsonb,
    submitted_by text, created_at timestamptz
);
CREATE TABLE floor_state (
    id uuid PRIMARY KEY, profile text, queue text, status text, from_status text, event text,
    change_id uuid, actor text, reason text, change_lease_id uuid, metadata jsonb, ready boolean,
    order_key bigint, run_at timestamptz, deadline_at timestamptz, attempt int, retry_count int,
    max_retries int, release_count int, lease_id uuid, lease_expires_at timestamptz,
    claim_id uuid, claimed_by text, claimed_at timestamptz, last_heartbeat_at timestamptz,
    stream_started_at timestamptz, approval_id uuid, result jsonb, error jsonb,
    created_at timestamptz, started_at timestamptz, entered_at timestamptz,
    updated_at timestamptz, finished_at timestamptz
);
CREATE INDEX floor_state_ready ON floor_state (queue, profile, order_key, id) WHERE ready;
