-- Tasks: the immutable part, the narrow mutable part, and the history that the database writes.
-- The same machine as on PostgreSQL; migrations/postgres/0001_task.up.sql says how it works.
--
-- What differs: times are INTEGER milliseconds, ids and JSON are TEXT; triggers are row triggers,
-- which SQLite compiles into the statement; BEFORE triggers cannot change the new row, so the one
-- that completes an update written by hand makes the update itself and drops the original; and
-- INSERT OR REPLACE would delete the old row without any trigger, so every insert checks first.
-- Only syntax that the sqlite3 command of Debian 12 (3.40) reads, so that a person can look in.

-- A copy of the domain's table, compared with it by a test. Only statements written by hand are
-- looked up here, to find the event they amount to; rank is the order of preference.
CREATE TABLE transition (
    rank INTEGER NOT NULL,
    profile TEXT NOT NULL,
    from_status TEXT NOT NULL,
    event TEXT NOT NULL,
    to_status TEXT NOT NULL,
    PRIMARY KEY (profile, from_status, to_status, rank)
) STRICT, WITHOUT ROWID;
--@transitions
INSERT INTO transition (rank, profile, from_status, event, to_status) VALUES
    (1, 'job', 'pending', 'claim', 'claimed'),
    (1, 'delegation', 'pending', 'claim', 'claimed'),
    (1, 'inference', 'pending', 'claim', 'claimed'),
    (2, 'job', 'pending', 'claim', 'running'),
    (2, 'delegation', 'pending', 'claim', 'running'),
    (2, 'inference', 'pending', 'claim', 'running'),
    (3, 'job', 'retry', 'claim', 'claimed'),
    (3, 'delegation', 'retry', 'claim', 'claimed'),
    (3, 'inference', 'retry', 'claim', 'claimed'),
    (4, 'job', 'retry', 'claim', 'running'),
    (4, 'delegation', 'retry', 'claim', 'running'),
    (4, 'inference', 'retry', 'claim', 'running'),
    (5, 'job', 'claimed', 'start', 'running'),
    (5, 'delegation', 'claimed', 'start', 'running'),
    (5, 'inference', 'claimed', 'start', 'running'),
    (6, 'job', 'claimed', 'release', 'pending'),
    (6, 'delegation', 'claimed', 'release', 'pending'),
    (6, 'inference', 'claimed', 'release', 'pending'),
    (7, 'job', 'running', 'release', 'pending'),
    (7, 'delegation', 'running', 'release', 'pending'),
    (7, 'inference', 'running', 'release', 'pending'),
    (8, 'job', 'claimed', 'lose_lease', 'pending'),
    (8, 'delegation', 'claimed', 'lose_lease', 'pending'),
    (8, 'inference', 'claimed', 'lose_lease', 'pending'),
    (9, 'job', 'running', 'lose_lease', 'retry'),
    (10, 'job', 'running', 'lose_lease', 'poisoned'),
    (11, 'delegation', 'running', 'lose_lease', 'stuck'),
    (12, 'inference', 'running', 'lose_lease', 'pending'),
    (13, 'ledger', 'claimed', 'lose_lease', 'stuck'),
    (14, 'ledger', 'running', 'lose_lease', 'stuck'),
    (15, 'job', 'claimed', 'complete', 'completed'),
    (15, 'delegation', 'claimed', 'complete', 'completed'),
    (15, 'inference', 'claimed', 'complete', 'completed'),
    (16, 'job', 'running', 'complete', 'completed'),
    (16, 'delegation', 'running', 'complete', 'completed'),
    (16, 'inference', 'running', 'complete', 'completed'),
    (17, 'job', 'claimed', 'fail', 'retry'),
    (17, 'delegation', 'claimed', 'fail', 'retry'),
    (17, 'inference', 'claimed', 'fail', 'retry'),
    (18, 'job', 'running', 'fail', 'retry'),
    (18, 'delegation', 'running', 'fail', 'retry'),
    (18, 'inference', 'running', 'fail', 'retry'),
    (19, 'job', 'claimed', 'fail', 'poisoned'),
    (19, 'delegation', 'claimed', 'fail', 'poisoned'),
    (19, 'inference', 'claimed', 'fail', 'poisoned'),
    (20, 'job', 'running', 'fail', 'poisoned'),
    (20, 'delegation', 'running', 'fail', 'poisoned'),
    (20, 'inference', 'running', 'fail', 'poisoned'),
    (21, 'job', 'claimed', 'fail', 'failed'),
    (21, 'delegation', 'claimed', 'fail', 'failed'),
    (21, 'inference', 'claimed', 'fail', 'failed'),
    (22, 'job', 'running', 'fail', 'failed'),
    (22, 'delegation', 'running', 'fail', 'failed'),
    (22, 'inference', 'running', 'fail', 'failed'),
    (23, 'job', 'running', 'ask_approval', 'waiting_for_approval'),
    (23, 'delegation', 'running', 'ask_approval', 'waiting_for_approval'),
    (23, 'inference', 'running', 'ask_approval', 'waiting_for_approval'),
    (24, 'job', 'waiting_for_approval', 'approve', 'pending'),
    (24, 'delegation', 'waiting_for_approval', 'approve', 'pending'),
    (24, 'inference', 'waiting_for_approval', 'approve', 'pending'),
    (25, 'job', 'waiting_for_approval', 'deny', 'failed'),
    (25, 'delegation', 'waiting_for_approval', 'deny', 'failed'),
    (25, 'inference', 'waiting_for_approval', 'deny', 'failed'),
    (26, 'job', 'waiting_for_approval', 'expire_approval', 'failed'),
    (26, 'delegation', 'waiting_for_approval', 'expire_approval', 'failed'),
    (26, 'inference', 'waiting_for_approval', 'expire_approval', 'failed'),
    (27, 'job', 'running', 'wait', 'waiting'),
    (27, 'delegation', 'running', 'wait', 'waiting'),
    (27, 'inference', 'running', 'wait', 'waiting'),
    (28, 'job', 'waiting', 'wake', 'pending'),
    (28, 'delegation', 'waiting', 'wake', 'pending'),
    (28, 'inference', 'waiting', 'wake', 'pending'),
    (29, 'job', 'pending', 'release_too_often', 'poisoned'),
    (29, 'delegation', 'pending', 'release_too_often', 'poisoned'),
    (29, 'inference', 'pending', 'release_too_often', 'poisoned'),
    (30, 'job', 'claimed', 'release_too_often', 'poisoned'),
    (30, 'delegation', 'claimed', 'release_too_often', 'poisoned'),
    (30, 'inference', 'claimed', 'release_too_often', 'poisoned'),
    (31, 'job', 'running', 'release_too_often', 'poisoned'),
    (31, 'delegation', 'running', 'release_too_often', 'poisoned'),
    (31, 'inference', 'running', 'release_too_often', 'poisoned'),
    (32, 'inference', 'pending', 'time_out_pending', 'failed'),
    (33, 'job', 'pending', 'cancel', 'cancelled'),
    (33, 'delegation', 'pending', 'cancel', 'cancelled'),
    (33, 'ledger', 'pending', 'cancel', 'cancelled'),
    (33, 'inference', 'pending', 'cancel', 'cancelled'),
    (34, 'job', 'claimed', 'cancel', 'cancelled'),
    (34, 'delegation', 'claimed', 'cancel', 'cancelled'),
    (34, 'ledger', 'claimed', 'cancel', 'cancelled'),
    (34, 'inference', 'claimed', 'cancel', 'cancelled'),
    (35, 'job', 'running', 'cancel', 'cancelled'),
    (35, 'delegation', 'running', 'cancel', 'cancelled'),
    (35, 'ledger', 'running', 'cancel', 'cancelled'),
    (35, 'inference', 'running', 'cancel', 'cancelled'),
    (36, 'job', 'waiting_for_approval', 'cancel', 'cancelled'),
    (36, 'delegation', 'waiting_for_approval', 'cancel', 'cancelled'),
    (36, 'ledger', 'waiting_for_approval', 'cancel', 'cancelled'),
    (36, 'inference', 'waiting_for_approval', 'cancel', 'cancelled'),
    (37, 'job', 'waiting', 'cancel', 'cancelled'),
    (37, 'delegation', 'waiting', 'cancel', 'cancelled'),
    (37, 'ledger', 'waiting', 'cancel', 'cancelled'),
    (37, 'inference', 'waiting', 'cancel', 'cancelled'),
    (38, 'job', 'retry', 'cancel', 'cancelled'),
    (38, 'delegation', 'retry', 'cancel', 'cancelled'),
    (38, 'ledger', 'retry', 'cancel', 'cancelled'),
    (38, 'inference', 'retry', 'cancel', 'cancelled'),
    (39, 'job', 'pending', 'exceed_deadline', 'failed'),
    (39, 'delegation', 'pending', 'exceed_deadline', 'failed'),
    (39, 'ledger', 'pending', 'exceed_deadline', 'failed'),
    (39, 'inference', 'pending', 'exceed_deadline', 'failed'),
    (40, 'job', 'claimed', 'exceed_deadline', 'failed'),
    (40, 'delegation', 'claimed', 'exceed_deadline', 'failed'),
    (40, 'ledger', 'claimed', 'exceed_deadline', 'failed'),
    (40, 'inference', 'claimed', 'exceed_deadline', 'failed'),
    (41, 'job', 'running', 'exceed_deadline', 'failed'),
    (41, 'delegation', 'running', 'exceed_deadline', 'failed'),
    (41, 'ledger', 'running', 'exceed_deadline', 'failed'),
    (41, 'inference', 'running', 'exceed_deadline', 'failed'),
    (42, 'job', 'waiting_for_approval', 'exceed_deadline', 'failed'),
    (42, 'delegation', 'waiting_for_approval', 'exceed_deadline', 'failed'),
    (42, 'ledger', 'waiting_for_approval', 'exceed_deadline', 'failed'),
    (42, 'inference', 'waiting_for_approval', 'exceed_deadline', 'failed'),
    (43, 'job', 'waiting', 'exceed_deadline', 'failed'),
    (43, 'delegation', 'waiting', 'exceed_deadline', 'failed'),
    (43, 'ledger', 'waiting', 'exceed_deadline', 'failed'),
    (43, 'inference', 'waiting', 'exceed_deadline', 'failed'),
    (44, 'job', 'retry', 'exceed_deadline', 'failed'),
    (44, 'delegation', 'retry', 'exceed_deadline', 'failed'),
    (44, 'ledger', 'retry', 'exceed_deadline', 'failed'),
    (44, 'inference', 'retry', 'exceed_deadline', 'failed'),
    (45, 'ledger', 'pending', 'report', 'claimed'),
    (46, 'ledger', 'pending', 'report', 'running'),
    (47, 'ledger', 'claimed', 'report', 'running'),
    (48, 'ledger', 'pending', 'report', 'completed'),
    (49, 'ledger', 'claimed', 'report', 'completed'),
    (50, 'ledger', 'running', 'report', 'completed'),
    (51, 'ledger', 'pending', 'report', 'failed'),
    (52, 'ledger', 'claimed', 'report', 'failed'),
    (53, 'ledger', 'running', 'report', 'failed'),
    (54, 'ledger', 'pending', 'report', 'stuck'),
    (55, 'ledger', 'claimed', 'report', 'stuck'),
    (56, 'ledger', 'running', 'report', 'stuck');
--@end

CREATE TABLE profile (
    profile TEXT PRIMARY KEY,
    max_retries INTEGER NOT NULL,
    deadline_ms INTEGER,
    retention_ms INTEGER
) STRICT, WITHOUT ROWID;
--@profiles
INSERT INTO profile (profile, max_retries, deadline_ms, retention_ms) VALUES
    ('job', 3, NULL, NULL),
    ('delegation', 0, 21600000, NULL),
    ('ledger', 0, 21600000, NULL),
    ('inference', 0, NULL, 604800000);
--@end

-- Holds a row only inside the retention duty's transaction, so that nobody deletes by mistake. Who
-- opens it, too, deletes nothing but what the duty would.
CREATE TABLE retention_gate (open INTEGER PRIMARY KEY CHECK (open = 1)) STRICT;

CREATE TABLE task_spec (
    id TEXT PRIMARY KEY NOT NULL CHECK (length(id) = 36),
    profile TEXT NOT NULL CHECK ((profile = 'job' OR profile = 'delegation' OR
                         profile = 'ledger' OR profile = 'inference')),
    name TEXT,
    queue TEXT NOT NULL,
    payload TEXT NOT NULL CHECK (json_valid(payload)),
    priority INTEGER NOT NULL DEFAULT 0,
    tags TEXT,
    agent TEXT,
    venture TEXT,
    portfolio TEXT,
    stage TEXT,
    owner TEXT,
    caller TEXT,
    callee TEXT,
    pool TEXT,
    llm TEXT,
    model TEXT,
    tier TEXT,
    parent_id TEXT,
    replay_of TEXT,
    correlation_id TEXT,
    idempotency_scope TEXT NOT NULL DEFAULT '',
    idempotency_key TEXT,
    request_digest TEXT,
    run_at INTEGER NOT NULL,
    deadline_at INTEGER,
    max_retries INTEGER NOT NULL,
    backoff TEXT,
    submitted_by TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    CONSTRAINT names_are_bounded CHECK (
        length(CAST(queue AS BLOB)) BETWEEN 1 AND 255
        AND (name IS NULL OR length(CAST(name AS BLOB)) <= 255)
        AND (agent IS NULL OR length(CAST(agent AS BLOB)) <= 255)
        AND (venture IS NULL OR length(CAST(venture AS BLOB)) <= 255)
        AND (portfolio IS NULL OR length(CAST(portfolio AS BLOB)) <= 255)
        AND (stage IS NULL OR length(CAST(stage AS BLOB)) <= 255)
        AND (owner IS NULL OR length(CAST(owner AS BLOB)) <= 255)
        AND (caller IS NULL OR length(CAST(caller AS BLOB)) <= 255)
        AND (callee IS NULL OR length(CAST(callee AS BLOB)) <= 255)
        AND (pool IS NULL OR length(CAST(pool AS BLOB)) <= 255)
        AND (llm IS NULL OR length(CAST(llm AS BLOB)) <= 255)
        AND (model IS NULL OR length(CAST(model AS BLOB)) <= 255)
        AND (tier IS NULL OR length(CAST(tier AS BLOB)) <= 255)
        AND (correlation_id IS NULL OR length(CAST(correlation_id AS BLOB)) <= 255)
        AND (idempotency_key IS NULL OR length(CAST(idempotency_key AS BLOB)) <= 255)
        AND length(CAST(idempotency_scope AS BLOB)) <= 255
        AND length(CAST(submitted_by AS BLOB)) BETWEEN 1 AND 255),
    CONSTRAINT priority_is_bounded CHECK (priority BETWEEN -32768 AND 32767),
    CONSTRAINT a_delegation_names_both_sides CHECK (
        profile NOT IN ('delegation', 'ledger') OR (caller IS NOT NULL AND callee IS NOT NULL)),
    CONSTRAINT an_inference_names_its_pool CHECK (profile <> 'inference' OR pool IS NOT NULL)
) STRICT, WITHOUT ROWID;

-- Not UNIQUE: REPLACE would delete the older task. The trigger task_spec_is_new refuses instead.
CREATE INDEX task_spec_idempotency ON task_spec (idempotency_scope, idempotency_key)
    WHERE idempotency_key IS NOT NULL;
CREATE INDEX task_spec_recent ON task_spec (created_at, id);
CREATE INDEX task_spec_agent ON task_spec (agent, created_at, id) WHERE agent IS NOT NULL;
CREATE INDEX task_spec_owner ON task_spec (owner, created_at, id) WHERE owner IS NOT NULL;
CREATE INDEX task_spec_venture ON task_spec (venture, created_at, id) WHERE venture IS NOT NULL;
CREATE INDEX task_spec_caller ON task_spec (caller, created_at, id) WHERE caller IS NOT NULL;
CREATE INDEX task_spec_callee ON task_spec (callee, created_at, id) WHERE callee IS NOT NULL;
CREATE INDEX task_spec_parent ON task_spec (parent_id, created_at, id)
    WHERE parent_id IS NOT NULL;
CREATE INDEX task_spec_replay ON task_spec (replay_of, created_at, id)
    WHERE replay_of IS NOT NULL;
CREATE INDEX task_spec_correlation ON task_spec (correlation_id, created_at, id)
    WHERE correlation_id IS NOT NULL;

-- Tags as rows: an index in time order gives pages of one tag, newest first, without a sort.
CREATE TABLE task_tag (
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    task_id TEXT NOT NULL,
    PRIMARY KEY (key, value, created_at, task_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE task_state (
    id TEXT PRIMARY KEY NOT NULL,
    profile TEXT NOT NULL CHECK ((profile = 'job' OR profile = 'delegation' OR
                         profile = 'ledger' OR profile = 'inference')),
    queue TEXT NOT NULL,
    status TEXT NOT NULL DEFAULT 'pending',
    from_status TEXT,
    event TEXT NOT NULL DEFAULT 'submit',
    change_id TEXT NOT NULL,
    actor TEXT NOT NULL,
    reason TEXT,
    change_lease_id TEXT,
    metadata TEXT CHECK (metadata IS NULL OR json_valid(metadata)),
    ready INTEGER NOT NULL CHECK (ready IN (0, 1)),
    order_key INTEGER NOT NULL,
    run_at INTEGER NOT NULL,
    deadline_at INTEGER,
    attempt INTEGER NOT NULL DEFAULT 0,
    retry_count INTEGER NOT NULL DEFAULT 0,
    max_retries INTEGER NOT NULL,
    release_count INTEGER NOT NULL DEFAULT 0,
    lease_id TEXT,
    lease_expires_at INTEGER,
    claim_id TEXT,
    claimed_by TEXT,
    claimed_at INTEGER,
    last_heartbeat_at INTEGER,
    stream_started_at INTEGER,
    approval_id TEXT,
    result TEXT CHECK (result IS NULL OR json_valid(result)),
    error TEXT CHECK (error IS NULL OR json_valid(error)),
    created_at INTEGER NOT NULL,
    started_at INTEGER,
    entered_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    -- Nothing changes after the end, so the last change is the end.
    finished_at INTEGER GENERATED ALWAYS AS (
        CASE WHEN (status = 'completed' OR status = 'failed' OR status = 'cancelled' OR
                   status = 'stuck' OR status = 'poisoned')
             THEN updated_at END) VIRTUAL,
    CONSTRAINT legal_transition CHECK (
--@legal_transition
        CASE
        WHEN from_status IS NULL THEN event = 'submit' AND status = 'pending'
        WHEN from_status = status THEN (status = 'pending' OR status = 'claimed'
            OR status = 'running' OR status = 'waiting_for_approval' OR status = 'waiting'
            OR status = 'retry')
        ELSE CASE event
            WHEN 'claim' THEN
                from_status IN ('pending', 'retry')
                    AND status IN ('claimed', 'running') AND profile <> 'ledger'
            WHEN 'start' THEN
                from_status = 'claimed'
                    AND status = 'running' AND profile <> 'ledger'
            WHEN 'release' THEN
                from_status IN ('claimed', 'running')
                    AND status = 'pending' AND profile <> 'ledger'
            WHEN 'lose_lease' THEN
                from_status = 'claimed'
                    AND status = 'pending' AND profile <> 'ledger'
                OR from_status = 'running'
                    AND status IN ('retry', 'poisoned') AND profile = 'job'
                OR from_status = 'running'
                    AND status = 'stuck' AND profile = 'delegation'
                OR from_status = 'running'
                    AND status = 'pending' AND profile = 'inference'
                OR from_status IN ('claimed', 'running')
                    AND status = 'stuck' AND profile = 'ledger'
            WHEN 'complete' THEN
                from_status IN ('claimed', 'running')
                    AND status = 'completed' AND profile <> 'ledger'
            WHEN 'fail' THEN
                from_status IN ('claimed', 'running')
                    AND (status = 'retry' OR status = 'poisoned'
                        OR status = 'failed') AND profile <> 'ledger'
            WHEN 'ask_approval' THEN
                from_status = 'running'
                    AND status = 'waiting_for_approval' AND profile <> 'ledger'
            WHEN 'wait' THEN
                from_status = 'running'
                    AND status = 'waiting' AND profile <> 'ledger'
            WHEN 'approve' THEN
                from_status = 'waiting_for_approval'
                    AND status = 'pending' AND profile <> 'ledger'
            WHEN 'deny' THEN
                from_status = 'waiting_for_approval'
                    AND status = 'failed' AND profile <> 'ledger'
            WHEN 'expire_approval' THEN
                from_status = 'waiting_for_approval'
                    AND status = 'failed' AND profile <> 'ledger'
            WHEN 'wake' THEN
                from_status = 'waiting'
                    AND status = 'pending' AND profile <> 'ledger'
            WHEN 'release_too_often' THEN
                (from_status = 'pending' OR from_status = 'claimed' OR from_status = 'running')
                    AND status = 'poisoned' AND profile <> 'ledger'
            WHEN 'time_out_pending' THEN
                from_status = 'pending'
                    AND status = 'failed' AND profile = 'inference'
            WHEN 'cancel' THEN
                (from_status = 'pending' OR from_status = 'claimed'
                    OR from_status = 'running' OR from_status = 'waiting_for_approval'
                    OR from_status = 'waiting' OR from_status = 'retry')
                    AND status = 'cancelled'
            WHEN 'exceed_deadline' THEN
                (from_status = 'pending' OR from_status = 'claimed'
                    OR from_status = 'running' OR from_status = 'waiting_for_approval'
                    OR from_status = 'waiting' OR from_status = 'retry')
                    AND status = 'failed'
            WHEN 'report' THEN
                from_status = 'pending'
                    AND status = 'claimed' AND profile = 'ledger'
                OR from_status IN ('pending', 'claimed')
                    AND status = 'running' AND profile = 'ledger'
                OR (from_status = 'pending' OR from_status = 'claimed'
                    OR from_status = 'running')
                    AND (status = 'completed' OR status = 'failed'
                        OR status = 'stuck') AND profile = 'ledger'
            ELSE FALSE END
        END
--@end
    ),
    CONSTRAINT lease_only_while_held CHECK (
        CASE WHEN profile = 'ledger' THEN lease_id IS NULL
             ELSE (status IN ('claimed', 'running')) = (lease_id IS NOT NULL) END),
    CONSTRAINT lease_expiry_only_while_held CHECK (
        CASE WHEN status IN ('claimed', 'running')
             THEN lease_expires_at IS NOT NULL OR profile IN ('delegation', 'ledger')
             ELSE lease_expires_at IS NULL END),
    CONSTRAINT holder_while_held CHECK (
        CASE WHEN status IN ('claimed', 'running') THEN claimed_by IS NOT NULL
             ELSE claimed_by IS NULL OR finished_at IS NOT NULL END),
    CONSTRAINT error_says_why_it_ended CHECK (
        (status <> 'failed' AND status <> 'stuck' AND status <> 'poisoned') OR error IS NOT NULL),
    -- Readers rely on it: one row that they cannot read would spoil every page it is on.
    CONSTRAINT error_has_a_code CHECK (
        error IS NULL OR (
            json_type(error, '$.code') IS 'text'
            AND coalesce(json_type(error, '$.message'), 'text') = 'text'
            AND json_remove(error, '$.code', '$.message', '$.detail') = '{}')),
    CONSTRAINT result_only_when_completed CHECK (result IS NULL OR status = 'completed'),
    CONSTRAINT approval_exactly_while_waiting_for_it CHECK (
        (status = 'waiting_for_approval') = (approval_id IS NOT NULL)),
    CONSTRAINT retries_are_bounded CHECK (
        retry_count BETWEEN 0 AND max_retries AND max_retries BETWEEN 0 AND 100),
    CONSTRAINT actor_is_bounded CHECK (length(CAST(actor AS BLOB)) BETWEEN 1 AND 255),
    CONSTRAINT counters_are_bounded CHECK (
        attempt BETWEEN 0 AND 1000000000 AND release_count BETWEEN 0 AND 20),
    CONSTRAINT ready_only_when_claimable CHECK (
        NOT ready OR (status IN ('pending', 'retry') AND profile <> 'ledger'))
) STRICT, WITHOUT ROWID;

-- A claim reads this index alone. Nothing but ready tasks is in it.
CREATE INDEX task_state_ready ON task_state (queue, profile, order_key, id)
    WHERE ready;
-- What becomes ready later.
CREATE INDEX task_state_due ON task_state (run_at)
    WHERE NOT ready AND status IN ('pending', 'retry') AND profile <> 'ledger';
-- What is held. Its condition is not that of the hot statements' guards on purpose: a planner
-- without statistics would walk over everything held to find one row.
CREATE INDEX task_state_holder ON task_state (claimed_by, claim_id)
    WHERE claimed_by IS NOT NULL AND finished_at IS NULL;
CREATE INDEX task_state_lease ON task_state (lease_expires_at)
    WHERE lease_expires_at IS NOT NULL;
CREATE INDEX task_state_deadline ON task_state (deadline_at)
    WHERE deadline_at IS NOT NULL
      AND (status = 'pending' OR status = 'claimed' OR status = 'running' OR
           status = 'waiting_for_approval' OR status = 'waiting' OR status = 'retry');
CREATE INDEX task_state_pending_inference ON task_state (entered_at)
    WHERE profile = 'inference' AND status = 'pending';
CREATE INDEX task_state_finished_inference ON task_state (finished_at)
    WHERE profile = 'inference' AND finished_at IS NOT NULL;
CREATE INDEX task_state_pending_ledger ON task_state (created_at, id)
    WHERE profile = 'ledger' AND status = 'pending';
CREATE INDEX task_state_rare ON task_state (status, created_at, id)
    WHERE (status = 'waiting_for_approval' OR status = 'waiting' OR status = 'retry' OR
           status = 'failed' OR status = 'cancelled' OR status = 'stuck' OR
           status = 'poisoned');

-- What a running task tells about itself. Apart, because a checkpoint of a megabyte must not be
-- rewritten by every heartbeat.
CREATE TABLE task_progress (
    task_id TEXT PRIMARY KEY NOT NULL,
    checkpoint TEXT CHECK (checkpoint IS NULL OR json_valid(checkpoint)),
    progress TEXT CHECK (progress IS NULL OR json_valid(progress)),
    updated_at INTEGER NOT NULL,
    CONSTRAINT checkpoint_is_bounded CHECK (
        checkpoint IS NULL OR length(CAST(checkpoint AS BLOB)) <= 4194304),
    CONSTRAINT progress_is_bounded CHECK (
        progress IS NULL OR length(CAST(progress AS BLOB)) <= 262144)
) STRICT;

-- One writer, so seq is the commit order. It is never reused: the newest row is never deleted.
CREATE TABLE task_history (
    seq INTEGER PRIMARY KEY,
    task_id TEXT NOT NULL,
    change_id TEXT NOT NULL,
    from_status TEXT,
    to_status TEXT NOT NULL,
    event TEXT NOT NULL,
    actor TEXT NOT NULL,
    reason TEXT,
    lease_id TEXT,
    metadata TEXT,
    at INTEGER NOT NULL
) STRICT;
CREATE INDEX task_history_task ON task_history (task_id, seq);

-- How many tasks ended in which state, up to a position in the history; see PostgreSQL's.
CREATE TABLE task_tally (
    status TEXT PRIMARY KEY NOT NULL,
    ended INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE task_tally_position (
    seq INTEGER NOT NULL
) STRICT;
INSERT INTO task_tally_position VALUES (0);

CREATE TABLE approval (
    id TEXT PRIMARY KEY NOT NULL,
    task_id TEXT NOT NULL,
    gate TEXT NOT NULL,
    status TEXT NOT NULL DEFAULT 'open'
        CHECK ((status = 'open' OR status = 'approved' OR status = 'denied' OR
                status = 'expired' OR status = 'withdrawn')),
    expires_at INTEGER,
    created_at INTEGER NOT NULL,
    decided_at INTEGER,
    CONSTRAINT decided_when_not_open CHECK ((status = 'open') = (decided_at IS NULL))
) STRICT;
CREATE UNIQUE INDEX approval_open ON approval (task_id) WHERE status = 'open';
CREATE INDEX approval_task ON approval (task_id, created_at);
CREATE INDEX approval_expiry ON approval (expires_at)
    WHERE status = 'open' AND expires_at IS NOT NULL;

-- What was done to many tasks at once and leaves no trace with them: retention says how many it
-- removed.
CREATE TABLE audit (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL,
    actor TEXT NOT NULL,
    event TEXT NOT NULL,
    detail TEXT NOT NULL CHECK (json_valid(detail))
) STRICT;

-- ---------------------------------------------------------------------------------------------
-- Refusals. Each says what is wrong. INSERT OR REPLACE and UPDATE OR REPLACE delete the row in
-- their way without a trigger, also one that has only the same rowid: so no statement may name a
-- rowid (when it names none, NEW.rowid is -1 before the insert), and the tables of the hot path
-- have none.

CREATE TRIGGER task_spec_is_new BEFORE INSERT ON task_spec
WHEN EXISTS (SELECT 1 FROM task_state WHERE id = NEW.id)
    OR (NEW.idempotency_key IS NOT NULL AND EXISTS (
        SELECT 1 FROM task_spec
        WHERE idempotency_scope = NEW.idempotency_scope
          AND idempotency_key = NEW.idempotency_key))
BEGIN
    SELECT RAISE(ABORT, 'windlass: task_spec: the id or idempotency key exists');
END;
CREATE TRIGGER task_spec_has_short_tags BEFORE INSERT ON task_spec
WHEN NEW.tags IS NOT NULL AND (json_type(NEW.tags) <> 'object' OR EXISTS (
    SELECT 1 FROM json_each(NEW.tags) AS t
    WHERE t.type <> 'text' OR length(CAST(t.key AS BLOB)) NOT BETWEEN 1 AND 255
        OR length(CAST(t.value AS BLOB)) > 255))
BEGIN
    SELECT RAISE(ABORT, 'windlass: task_spec: tags must be an object of short strings');
END;
-- One row that a reader does not understand would spoil every page it is on.
CREATE TRIGGER task_spec_can_be_read BEFORE INSERT ON task_spec BEGIN
    SELECT RAISE(ABORT, 'windlass: task_spec: an id is 36 characters, lower case, with hyphens')
    WHERE (NEW.id NOT LIKE '________-____-____-____-____________'
        OR replace(NEW.id, '-', '') GLOB '*[^0-9a-f]*'
        OR length(replace(NEW.id, '-', '')) <> 32)
        OR (NEW.parent_id NOT LIKE '________-____-____-____-____________'
        OR replace(NEW.parent_id, '-', '') GLOB '*[^0-9a-f]*'
        OR length(replace(NEW.parent_id, '-', '')) <> 32)
        OR (NEW.replay_of NOT LIKE '________-____-____-____-____________'
        OR replace(NEW.replay_of, '-', '') GLOB '*[^0-9a-f]*'
        OR length(replace(NEW.replay_of, '-', '')) <> 32);
    SELECT RAISE(ABORT, 'windlass: task_spec: the JSON is too deep, or no 64-bit float holds it')
    WHERE EXISTS (
        SELECT 1 FROM json_tree(NEW.payload) AS j
        WHERE (j.type IN ('integer', 'real') AND abs(j.atom) = 9e999)
           OR (j.type = 'integer' AND typeof(j.atom) = 'real')
           OR (j.type IN ('array', 'object') AND 64
               <= length(j.fullkey) - length(replace(replace(j.fullkey, '.', ''), '[', ''))))
        OR NEW.payload GLOB '*\u[dD][89abAB]*' OR NEW.payload GLOB '*\u0000*';
    SELECT RAISE(ABORT, 'windlass: task_spec: a name is empty, not trimmed, or not plain text')
    FROM (SELECT value AS name FROM json_each(json_array(
            NEW.queue, NEW.name, NEW.agent, NEW.venture, NEW.portfolio, NEW.stage, NEW.owner,
            NEW.caller, NEW.callee, NEW.pool, NEW.llm, NEW.model, NEW.tier, NEW.correlation_id,
            NEW.idempotency_key))
        UNION ALL SELECT key FROM json_each(NEW.tags)
        UNION ALL SELECT '.' || value || '.' FROM json_each(NEW.tags))
    WHERE name = '' OR trim(name, ' ' || char(160, 5760, 8239, 8287, 12288)) <> name
        OR name GLOB '*[' || char(1) || '-' || char(31) || char(127) || '-' || char(159)
            || char(1564, 8206, 8207, 8232) || '-' || char(8238, 8294) || '-' || char(8297) || ']*';
    SELECT RAISE(ABORT, 'windlass: task_spec: there may be at most 64 tags')
    WHERE (SELECT count(*) FROM json_each(NEW.tags)) > 64;
    SELECT RAISE(ABORT, 'windlass: task_spec: a time must be from the year 1970 to 9999')
    WHERE NEW.run_at NOT BETWEEN 0 AND 253402300799999
        OR NEW.deadline_at NOT BETWEEN 0 AND 253402300799999
        OR NEW.created_at NOT BETWEEN 0 AND 253402300799999;
    SELECT RAISE(ABORT, 'windlass: task_spec: backoff is not one that the API would take')
    WHERE NEW.backoff IS NOT NULL AND CASE
        WHEN NOT json_valid(NEW.backoff) THEN TRUE
        WHEN json_type(NEW.backoff) <> 'object' THEN TRUE
        ELSE EXISTS (
            SELECT 1 FROM json_each(NEW.backoff) AS b
            WHERE CASE
                WHEN b.key IN ('base_ms', 'max_ms')
                    THEN b.type <> 'integer' OR b.value NOT BETWEEN 0 AND 315360000000
                WHEN b.key = 'multiplier'
                    THEN b.type NOT IN ('integer', 'real') OR b.value NOT BETWEEN 1 AND 1000
                WHEN b.key = 'jitter' THEN b.type NOT IN ('true', 'false')
                WHEN b.key IN ('retryable', 'non_retryable')
                    THEN b.type <> 'array' OR json_array_length(b.value) > 100 OR EXISTS (
                        SELECT 1 FROM json_each(b.value) AS code
                        WHERE code.type <> 'text' OR length(code.value) NOT BETWEEN 1 AND 100
                            OR code.value GLOB '*[^A-Za-z0-9_.-]*')
                ELSE TRUE END)
            OR coalesce(NEW.backoff ->> 'max_ms', 300000)
                < coalesce(NEW.backoff ->> 'base_ms', 1000) END;
END;
CREATE TRIGGER task_spec_is_immutable BEFORE UPDATE ON task_spec BEGIN
    SELECT RAISE(ABORT, 'windlass: task_spec: what was submitted never changes');
END;
CREATE TRIGGER task_spec_is_kept BEFORE DELETE ON task_spec
WHEN NOT EXISTS (SELECT 1 FROM retention_gate)
    OR EXISTS (SELECT 1 FROM task_state WHERE id = OLD.id)
BEGIN
    SELECT RAISE(ABORT, 'windlass: task_spec: only the retention duty removes rows');
END;
CREATE TRIGGER task_tag_is_immutable BEFORE UPDATE ON task_tag BEGIN
    SELECT RAISE(ABORT, 'windlass: task_tag: what was submitted never changes');
END;
CREATE TRIGGER task_tag_writes_itself BEFORE INSERT ON task_tag
WHEN NOT EXISTS (
    SELECT 1 FROM task_spec s, json_each(s.tags) AS t
    WHERE s.id = NEW.task_id AND s.created_at = NEW.created_at
      AND t.key = NEW.key AND t.value = NEW.value)
BEGIN
    SELECT RAISE(ABORT, 'windlass: task_tag: the database writes it');
END;
CREATE TRIGGER task_tag_is_kept BEFORE DELETE ON task_tag
WHEN NOT EXISTS (SELECT 1 FROM retention_gate) OR NOT EXISTS (
    SELECT 1 FROM task_state st JOIN profile p ON p.profile = st.profile
    WHERE st.id = OLD.task_id AND st.finished_at + p.retention_ms
        <= CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER))
BEGIN
    SELECT RAISE(ABORT, 'windlass: task_tag: only the retention duty removes rows');
END;
CREATE TRIGGER task_state_begins_once BEFORE INSERT ON task_state
WHEN NEW.from_status IS NOT NULL
    OR EXISTS (SELECT 1 FROM task_history WHERE task_id = NEW.id)
BEGIN
    SELECT RAISE(ABORT, 'windlass: task_state: a task begins once, as pending');
END;
CREATE TRIGGER task_state_begins_as_submitted AFTER INSERT ON task_state
WHEN NOT EXISTS (
    SELECT 1 FROM task_spec
    WHERE id = NEW.id AND profile = NEW.profile AND queue = NEW.queue AND run_at = NEW.run_at
      AND max_retries = NEW.max_retries AND created_at = NEW.created_at)
BEGIN
    SELECT RAISE(ABORT, 'windlass: task_state: it does not begin as it was submitted, or was not');
END;
CREATE TRIGGER task_state_is_kept BEFORE DELETE ON task_state
WHEN NOT EXISTS (SELECT 1 FROM retention_gate) OR NOT EXISTS (
    SELECT 1 FROM task_state st JOIN profile p ON p.profile = st.profile
    WHERE st.id = OLD.id AND st.finished_at + p.retention_ms
        <= CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER))
BEGIN
    SELECT RAISE(ABORT, 'windlass: task_state: only the retention duty removes rows');
END;
CREATE TRIGGER task_history_is_append_only BEFORE UPDATE ON task_history BEGIN
    SELECT RAISE(ABORT, 'windlass: task_history: history is append-only');
END;
CREATE TRIGGER task_history_is_kept BEFORE DELETE ON task_history
WHEN OLD.seq = (SELECT max(seq) FROM task_history)
    OR NOT EXISTS (SELECT 1 FROM retention_gate) OR NOT EXISTS (
    SELECT 1 FROM task_state st JOIN profile p ON p.profile = st.profile
    WHERE st.id = OLD.task_id AND st.finished_at + p.retention_ms
        <= CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER))
BEGIN
    SELECT RAISE(ABORT, 'windlass: task_history: only the retention duty removes rows');
END;
-- A row that is not the last change of its task, word for word, was made up; one whose change is
-- told already would tell it twice.
CREATE TRIGGER task_history_writes_itself BEFORE INSERT ON task_history
WHEN NEW.seq > 0
    OR NOT EXISTS (
        SELECT 1 FROM task_state
        WHERE id = NEW.task_id AND change_id = NEW.change_id AND updated_at = NEW.at
          AND status = NEW.to_status AND from_status IS NEW.from_status
          AND from_status IS NOT status AND event = NEW.event AND actor = NEW.actor
          AND reason IS NEW.reason AND change_lease_id IS NEW.lease_id
          AND metadata IS NEW.metadata)
    OR NEW.change_id IS (
        SELECT change_id FROM task_history
        WHERE task_id = NEW.task_id ORDER BY seq DESC LIMIT 1)
BEGIN
    SELECT RAISE(ABORT, 'windlass: task_history: the database writes it');
END;
CREATE TRIGGER audit_is_append_only_i BEFORE INSERT ON audit WHEN NEW.seq > 0 BEGIN
    SELECT RAISE(ABORT, 'windlass: audit: the record is append-only');
END;
CREATE TRIGGER audit_is_append_only_u BEFORE UPDATE ON audit BEGIN
    SELECT RAISE(ABORT, 'windlass: audit: the record is append-only');
END;
CREATE TRIGGER audit_is_append_only_d BEFORE DELETE ON audit BEGIN
    SELECT RAISE(ABORT, 'windlass: audit: the record is append-only');
END;
CREATE TRIGGER transition_is_fixed_i BEFORE INSERT ON transition BEGIN
    SELECT RAISE(ABORT, 'windlass: transition: a migration changes the state machine');
END;
CREATE TRIGGER transition_is_fixed_u BEFORE UPDATE ON transition BEGIN
    SELECT RAISE(ABORT, 'windlass: transition: a migration changes the state machine');
END;
CREATE TRIGGER transition_is_fixed_d BEFORE DELETE ON transition BEGIN
    SELECT RAISE(ABORT, 'windlass: transition: a migration changes the state machine');
END;
CREATE TRIGGER profile_is_fixed_i BEFORE INSERT ON profile BEGIN
    SELECT RAISE(ABORT, 'windlass: profile: a migration changes the profiles');
END;
CREATE TRIGGER profile_is_fixed_u BEFORE UPDATE ON profile BEGIN
    SELECT RAISE(ABORT, 'windlass: profile: a migration changes the profiles');
END;
CREATE TRIGGER profile_is_fixed_d BEFORE DELETE ON profile BEGIN
    SELECT RAISE(ABORT, 'windlass: profile: a migration changes the profiles');
END;

-- ---------------------------------------------------------------------------------------------
-- Statements written by hand.

-- One trigger for three cases, because every update pays for every trigger: what was submitted is
-- changed, a task asks for an approval, or the statement was written by hand. The last part is only
-- for statements written by hand; everything in it says so.
CREATE TRIGGER task_state_guard_update BEFORE UPDATE ON task_state
WHEN NEW.change_id = OLD.change_id OR NEW.from_status IS NOT OLD.status
    OR NEW.id <> OLD.id OR NEW.profile <> OLD.profile OR NEW.queue <> OLD.queue
    OR NEW.created_at <> OLD.created_at OR NEW.max_retries <> OLD.max_retries
    OR NEW.status = 'waiting_for_approval' OR NEW.updated_at < OLD.updated_at
    OR NEW.status = OLD.status AND (NEW.lease_id <> OLD.lease_id OR NEW.attempt <> OLD.attempt)
BEGIN
    SELECT RAISE(ABORT, 'windlass: task_state: what was submitted never changes')
    WHERE NEW.id <> OLD.id OR NEW.profile <> OLD.profile OR NEW.queue <> OLD.queue
        OR NEW.created_at <> OLD.created_at OR NEW.max_retries <> OLD.max_retries;
    SELECT RAISE(ABORT, 'windlass: task_state: its open approval must be its own, and new')
    WHERE NEW.status = 'waiting_for_approval'
        AND (NEW.status = OLD.status AND NEW.approval_id IS NOT OLD.approval_id
             OR NEW.status <> OLD.status
                 AND EXISTS (SELECT 1 FROM approval WHERE id = NEW.approval_id));
    SELECT RAISE(ABORT, 'windlass: task_state: lease and attempt change only with the status')
    WHERE NEW.status = OLD.status AND (NEW.lease_id <> OLD.lease_id OR NEW.attempt <> OLD.attempt);
    SELECT RAISE(ABORT, 'windlass: task_state: a finished task never changes')
    WHERE OLD.finished_at IS NOT NULL;
    SELECT RAISE(ABORT, 'windlass: task_state: it was changed later than that')
    WHERE NEW.updated_at < OLD.updated_at
      AND NOT (NEW.change_id = OLD.change_id OR NEW.from_status IS NOT OLD.status);
    SELECT RAISE(ABORT, 'windlass: task_state: the JSON is too deep, or no 64-bit float holds it')
    WHERE EXISTS (
        SELECT 1 FROM json_tree(json_array(json(NEW.result), json(NEW.error))) AS j
        WHERE (j.type IN ('integer', 'real') AND abs(j.atom) = 9e999)
           OR (j.type = 'integer' AND typeof(j.atom) = 'real')
           OR (j.type IN ('array', 'object') AND 65
               <= length(j.fullkey) - length(replace(replace(j.fullkey, '.', ''), '[', ''))))
        OR NEW.result GLOB '*\u[dD][89abAB]*' OR NEW.result GLOB '*\u0000*'
        OR NEW.error GLOB '*\u[dD][89abAB]*' OR NEW.error GLOB '*\u0000*';
    SELECT RAISE(ABORT, 'windlass: task_state: an id is 36 characters, lower case, with hyphens')
    WHERE (NEW.lease_id NOT LIKE '________-____-____-____-____________'
        OR replace(NEW.lease_id, '-', '') GLOB '*[^0-9a-f]*'
        OR length(replace(NEW.lease_id, '-', '')) <> 32)
        OR (NEW.claim_id NOT LIKE '________-____-____-____-____________'
        OR replace(NEW.claim_id, '-', '') GLOB '*[^0-9a-f]*'
        OR length(replace(NEW.claim_id, '-', '')) <> 32)
        OR (NEW.approval_id NOT LIKE '________-____-____-____-____________'
        OR replace(NEW.approval_id, '-', '') GLOB '*[^0-9a-f]*'
        OR length(replace(NEW.approval_id, '-', '')) <> 32);
    SELECT RAISE(ABORT, 'windlass: task_state: a time must be from the year 1970 to 9999')
    FROM json_each(json_array(
        NEW.run_at, NEW.deadline_at, NEW.lease_expires_at, NEW.claimed_at, NEW.last_heartbeat_at,
        NEW.stream_started_at, NEW.started_at))
    WHERE value NOT BETWEEN 0 AND 253402300799999;
    SELECT RAISE(ABORT, 'windlass: task_state: claimed_by takes more than 255 bytes')
    WHERE length(CAST(NEW.claimed_by AS BLOB)) > 255;
    SELECT RAISE(ABORT, 'windlass: task_state: the machine has no such transition')
    WHERE (NEW.change_id = OLD.change_id OR NEW.from_status IS NOT OLD.status)
      AND NEW.status <> OLD.status AND NOT EXISTS (
        SELECT 1 FROM transition t
        WHERE t.profile = OLD.profile AND t.from_status = OLD.status
          AND t.to_status = NEW.status);
    UPDATE task_state SET
        id = NEW.id,
        profile = NEW.profile,
        queue = NEW.queue,
        status = NEW.status,
        from_status = OLD.status,
        event = CASE WHEN NEW.status = OLD.status THEN OLD.event ELSE (
            SELECT t.event FROM transition t
            WHERE t.profile = OLD.profile AND t.from_status = OLD.status
              AND t.to_status = NEW.status
            ORDER BY t.rank LIMIT 1) END,
        change_id = lower(hex(randomblob(16))),
        actor = 'sql:sqlite',
        reason = NULL,
        change_lease_id = coalesce(OLD.lease_id, NEW.lease_id),
        -- Every failure is kept, this one too.
        metadata = CASE
            WHEN NEW.status <> OLD.status AND NEW.error IS NOT NULL
                    AND (NEW.status = 'failed' OR NEW.status = 'stuck' OR NEW.status = 'poisoned'
                         OR NEW.error IS NOT OLD.error)
                THEN json_patch(
                    json_object('error', json(NEW.error), 'attempt', NEW.attempt,
                                'session', OLD.claimed_by),
                    json_object('approval', OLD.approval_id))
            WHEN NEW.status <> OLD.status AND OLD.approval_id IS NOT NULL
                THEN json_object('approval', OLD.approval_id) END,
        -- Whoever postpones a task need not know the index it stands in.
        ready = NEW.ready AND coalesce(
            NEW.run_at <= CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER), TRUE),
        order_key = NEW.order_key,
        run_at = NEW.run_at,
        deadline_at = NEW.deadline_at,
        attempt = NEW.attempt,
        retry_count = NEW.retry_count,
        max_retries = NEW.max_retries,
        release_count = NEW.release_count,
        lease_id = NEW.lease_id,
        lease_expires_at = NEW.lease_expires_at,
        claim_id = NEW.claim_id,
        claimed_by = NEW.claimed_by,
        claimed_at = NEW.claimed_at,
        last_heartbeat_at = NEW.last_heartbeat_at,
        stream_started_at = NEW.stream_started_at,
        approval_id = NEW.approval_id,
        result = NEW.result,
        error = NEW.error,
        created_at = NEW.created_at,
        started_at = NEW.started_at,
        entered_at = CASE WHEN NEW.status = OLD.status THEN OLD.entered_at
            ELSE max(CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER),
                     OLD.updated_at) END,
        updated_at = max(CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER),
                         OLD.updated_at)
    WHERE id = OLD.id AND (NEW.change_id = OLD.change_id OR NEW.from_status IS NOT OLD.status);
    SELECT RAISE(IGNORE)
    WHERE (NEW.change_id = OLD.change_id OR NEW.from_status IS NOT OLD.status);
END;

-- ---------------------------------------------------------------------------------------------
-- Approvals: a task waits for an approval exactly while one is open.

-- Moved by hand, a task brings its question along.
CREATE TRIGGER task_state_asks AFTER UPDATE ON task_state
WHEN NEW.status = 'waiting_for_approval' AND OLD.status <> 'waiting_for_approval'
BEGIN
    INSERT INTO approval (id, task_id, gate, created_at)
    VALUES (NEW.approval_id, NEW.id, 'by hand', NEW.updated_at);
END;
CREATE TRIGGER approval_is_awaited BEFORE INSERT ON approval
WHEN NEW.rowid > 0 OR NEW.status <> 'open' OR NOT EXISTS (
    SELECT 1 FROM task_state WHERE id = NEW.task_id AND approval_id = NEW.id)
BEGIN
    SELECT RAISE(ABORT, 'windlass: approval: it begins open, when its task begins to wait for it');
END;
CREATE TRIGGER approval_is_not_replaced BEFORE INSERT ON approval
WHEN EXISTS (SELECT 1 FROM approval WHERE id = NEW.id)
    OR EXISTS (SELECT 1 FROM approval WHERE task_id = NEW.task_id AND status = 'open')
BEGIN
    SELECT RAISE(ABORT, 'windlass: approval: the id exists, or the task has an open one');
END;
CREATE TRIGGER approval_is_answered_once BEFORE UPDATE ON approval
WHEN NEW.rowid <> OLD.rowid OR NEW.id <> OLD.id OR NEW.task_id <> OLD.task_id
    OR NEW.gate <> OLD.gate OR NEW.created_at <> OLD.created_at
    OR OLD.status <> 'open'
        AND (NEW.status <> OLD.status OR NEW.decided_at IS NOT OLD.decided_at)
BEGIN
    SELECT RAISE(ABORT, 'windlass: approval: an answer is written once');
END;
-- The task's own transition closes the approval; nothing else may while the task waits for it.
CREATE TRIGGER approval_closes_with_its_task BEFORE UPDATE ON approval
WHEN OLD.status = 'open' AND NEW.status <> 'open' AND EXISTS (
    SELECT 1 FROM task_state WHERE id = NEW.task_id AND approval_id = NEW.id)
BEGIN
    SELECT RAISE(ABORT, 'windlass: approval: its task waits for it; move the task');
END;
CREATE TRIGGER approval_is_kept BEFORE DELETE ON approval
WHEN NOT EXISTS (SELECT 1 FROM retention_gate) OR NOT EXISTS (
    SELECT 1 FROM task_state st JOIN profile p ON p.profile = st.profile
    WHERE st.id = OLD.task_id AND st.finished_at + p.retention_ms
        <= CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER))
BEGIN
    SELECT RAISE(ABORT, 'windlass: approval: only the retention duty removes rows');
END;
CREATE TRIGGER task_progress_is_kept BEFORE DELETE ON task_progress
WHEN NOT EXISTS (SELECT 1 FROM retention_gate) OR NOT EXISTS (
    SELECT 1 FROM task_state st JOIN profile p ON p.profile = st.profile
    WHERE st.id = OLD.task_id AND st.finished_at + p.retention_ms
        <= CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER))
BEGIN
    SELECT RAISE(ABORT, 'windlass: task_progress: only the retention duty removes rows');
END;
CREATE TRIGGER task_progress_of_a_living_task_i BEFORE INSERT ON task_progress
WHEN NEW.rowid > 0 OR NOT EXISTS (
    SELECT 1 FROM task_state WHERE id = NEW.task_id AND finished_at IS NULL)
BEGIN
    SELECT RAISE(ABORT, 'windlass: task_progress: the task is finished or unknown');
END;
CREATE TRIGGER task_progress_of_a_living_task_u BEFORE UPDATE ON task_progress
WHEN NEW.rowid <> OLD.rowid OR NEW.task_id <> OLD.task_id OR NOT EXISTS (
    SELECT 1 FROM task_state WHERE id = NEW.task_id AND finished_at IS NULL)
BEGIN
    SELECT RAISE(ABORT, 'windlass: task_progress: the task is finished or unknown');
END;

CREATE TRIGGER task_progress_can_be_read_i BEFORE INSERT ON task_progress
WHEN EXISTS (
        SELECT 1 FROM json_tree(json_array(json(NEW.checkpoint), json(NEW.progress))) AS j
        WHERE (j.type IN ('integer', 'real') AND abs(j.atom) = 9e999)
           OR (j.type = 'integer' AND typeof(j.atom) = 'real')
           OR (j.type IN ('array', 'object') AND 65
               <= length(j.fullkey) - length(replace(replace(j.fullkey, '.', ''), '[', ''))))
    OR NEW.checkpoint GLOB '*\u[dD][89abAB]*' OR NEW.checkpoint GLOB '*\u0000*'
    OR NEW.progress GLOB '*\u[dD][89abAB]*' OR NEW.progress GLOB '*\u0000*'
BEGIN
    SELECT RAISE(ABORT, 'windlass: task_progress: JSON too deep, or no 64-bit float holds it');
END;
CREATE TRIGGER task_progress_can_be_read_u BEFORE UPDATE ON task_progress
WHEN EXISTS (
        SELECT 1 FROM json_tree(json_array(json(NEW.checkpoint), json(NEW.progress))) AS j
        WHERE (j.type IN ('integer', 'real') AND abs(j.atom) = 9e999)
           OR (j.type = 'integer' AND typeof(j.atom) = 'real')
           OR (j.type IN ('array', 'object') AND 65
               <= length(j.fullkey) - length(replace(replace(j.fullkey, '.', ''), '[', ''))))
    OR NEW.checkpoint GLOB '*\u[dD][89abAB]*' OR NEW.checkpoint GLOB '*\u0000*'
    OR NEW.progress GLOB '*\u[dD][89abAB]*' OR NEW.progress GLOB '*\u0000*'
BEGIN
    SELECT RAISE(ABORT, 'windlass: task_progress: JSON too deep, or no 64-bit float holds it');
END;

-- ---------------------------------------------------------------------------------------------
-- History.

CREATE TRIGGER task_state_insert_history AFTER INSERT ON task_state BEGIN
    INSERT INTO task_history (task_id, change_id, from_status, to_status, event, actor, reason,
                              lease_id, metadata, at)
    VALUES (NEW.id, NEW.change_id, NULL, NEW.status, NEW.event, NEW.actor, NEW.reason,
            NEW.change_lease_id, NEW.metadata, NEW.updated_at);
END;
CREATE TRIGGER task_state_update_history AFTER UPDATE ON task_state
WHEN NEW.status <> OLD.status BEGIN
    SELECT RAISE(ABORT, 'windlass: task_state: from_status must say where the task stood')
    WHERE NEW.from_status IS NOT OLD.status;
    INSERT INTO task_history (task_id, change_id, from_status, to_status, event, actor, reason,
                              lease_id, metadata, at)
    VALUES (NEW.id, NEW.change_id, OLD.status, NEW.status, NEW.event, NEW.actor, NEW.reason,
            NEW.change_lease_id, NEW.metadata, NEW.updated_at);
    -- What it asked is answered or withdrawn with it.
    UPDATE approval SET decided_at = NEW.updated_at, status = CASE NEW.event
        WHEN 'approve' THEN 'approved' WHEN 'deny' THEN 'denied'
        WHEN 'expire_approval' THEN 'expired' ELSE 'withdrawn' END
    WHERE OLD.status = 'waiting_for_approval' AND task_id = NEW.id AND status = 'open';
END;
-- What was submitted begins its life at once. (PostgreSQL does it in the submitting statement.)
CREATE TRIGGER task_spec_begins AFTER INSERT ON task_spec BEGIN
    INSERT INTO task_state (id, profile, queue, change_id, actor, ready, order_key, run_at,
                            deadline_at, max_retries, created_at, entered_at, updated_at)
    VALUES (NEW.id, NEW.profile, NEW.queue, NEW.id, NEW.submitted_by,
            NEW.run_at <= NEW.created_at AND NEW.profile <> 'ledger',
            -NEW.priority * 35184372088832 + min(NEW.run_at, 35184372088831), NEW.run_at,
            NEW.deadline_at, NEW.max_retries, NEW.created_at, NEW.created_at, NEW.created_at);
    INSERT INTO task_tag (key, value, created_at, task_id)
    SELECT t.key, t.value, NEW.created_at, NEW.id FROM json_each(NEW.tags) AS t
    WHERE NEW.tags IS NOT NULL;
END;

-- ---------------------------------------------------------------------------------------------
-- What a person reads.

CREATE VIEW task AS
SELECT s.id,
       CASE s.profile WHEN 'ledger' THEN 'delegation' ELSE s.profile END AS kind,
       CASE s.profile WHEN 'ledger' THEN 'ledger' ELSE 'executed' END AS mode,
       s.name, s.queue, st.status, s.payload, st.result, st.error,
       p.checkpoint, p.progress, s.priority, s.tags, s.agent, s.venture, s.portfolio, s.stage,
       s.owner, s.caller, s.callee, s.pool, s.llm, s.model, s.tier, s.parent_id, s.replay_of,
       (SELECT count(*) FROM task_spec r WHERE r.replay_of = s.id) AS replay_count,
       s.correlation_id, s.idempotency_key, st.attempt, st.retry_count, st.max_retries,
       st.release_count,
       strftime('%Y-%m-%dT%H:%M:%fZ', st.run_at / 1000.0, 'unixepoch') AS run_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', st.deadline_at / 1000.0, 'unixepoch') AS deadline_at,
       st.claimed_by,
       strftime('%Y-%m-%dT%H:%M:%fZ', st.claimed_at / 1000.0, 'unixepoch') AS claimed_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', st.lease_expires_at / 1000.0, 'unixepoch')
           AS lease_expires_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', st.last_heartbeat_at / 1000.0, 'unixepoch')
           AS last_heartbeat_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', st.stream_started_at / 1000.0, 'unixepoch')
           AS stream_started_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', s.created_at / 1000.0, 'unixepoch') AS created_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', st.started_at / 1000.0, 'unixepoch') AS started_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', st.updated_at / 1000.0, 'unixepoch') AS updated_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', st.finished_at / 1000.0, 'unixepoch') AS finished_at
FROM task_spec s
JOIN task_state st ON st.id = s.id
LEFT JOIN task_progress p ON p.task_id = s.id;

CREATE TRIGGER task_is_read_only_i INSTEAD OF INSERT ON task BEGIN
    SELECT RAISE(ABORT, 'windlass: task is a read-only view; use the API or task_state');
END;
CREATE TRIGGER task_is_read_only_u INSTEAD OF UPDATE ON task BEGIN
    SELECT RAISE(ABORT, 'windlass: task is a read-only view; use the API or task_state');
END;
CREATE TRIGGER task_is_read_only_d INSTEAD OF DELETE ON task BEGIN
    SELECT RAISE(ABORT, 'windlass: task is a read-only view; use the API or task_state');
END;

CREATE VIEW task_failure AS
SELECT task_id, seq, metadata -> 'error' AS error, metadata ->> 'attempt' AS attempt,
       metadata ->> 'session' AS session,
       strftime('%Y-%m-%dT%H:%M:%fZ', at / 1000.0, 'unixepoch') AS at
FROM task_history
WHERE metadata -> 'error' IS NOT NULL;
