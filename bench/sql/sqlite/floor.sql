-- The floor: the product's columns, the keys that the work itself needs, and nothing else. It is
-- written out here, and not copied from the schema, so that it stays put when the schema moves.
CREATE TABLE floor_spec (
    id TEXT PRIMARY KEY, profile TEXT, name TEXT, queue TEXT, payload TEXT, priority INTEGER,
    tags TEXT, agent TEXT, venture TEXT, portfolio TEXT, stage TEXT, owner TEXT, caller TEXT,
    callee TEXT, pool TEXT, llm TEXT, model TEXT, tier TEXT, parent_id TEXT, replay_of TEXT,
    correlation_id TEXT, idempotency_scope TEXT, idempotency_key TEXT, request_digest TEXT,
    run_at INTEGER, deadline_at INTEGER, max_retries INTEGER, backoff TEXT, submitted_by TEXT,
    created_at INTEGER
);
CREATE TABLE floor_state (
    id TEXT PRIMARY KEY, profile TEXT, queue TEXT, status TEXT, from_status TEXT, event TEXT,
    change_id TEXT, actor TEXT, reason TEXT, change_lease_id TEXT, metadata TEXT, ready INTEGER,
    order_key INTEGER, run_at INTEGER, deadline_at INTEGER, attempt INTEGER, retry_count INTEGER,
    max_retries INTEGER, release_count INTEGER, lease_id TEXT, lease_expires_at INTEGER,
    claim_id TEXT, claimed_by TEXT, claimed_at INTEGER, last_heartbeat_at INTEGER,
    stream_started_at INTEGER, approval_id TEXT, result TEXT, error TEXT, created_at INTEGER,
    started_at INTEGER, entered_at INTEGER, updated_at INTEGER, finished_at INTEGER
);
CREATE INDEX floor_state_ready ON floor_state (queue, profile, order_key, id) WHERE ready;
