-- Tasks: the immutable part, the narrow mutable part, and the history that the database writes.
--
-- How the machine is enforced. Every update of task_state must say where the task stood
-- (from_status) and carry a fresh change_id, so that the new row alone knows the whole transition:
-- (profile, from_status, event, status). The statement trigger that writes the history looks each
-- of them up in the machine's table, in the same pass; no old row is needed, so nothing is joined
-- that could grow. What it cannot know is whether from_status is true: a row trigger, whose WHEN
-- is false for every statement of ours, catches updates that lie or say nothing. Those are written
-- by hand, and it fills in what they left out or refuses them.
--
-- Invariant: one task_history row per transition, written by a statement trigger from the new
-- rows alone. xid and seq give it a place in the log; how a reader skips nothing and sees every
-- task's changes in their order is said at windlass_xid.
--
-- Functions look names up in the schema that this migration runs in and nowhere else, whatever
-- search_path their caller has.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

CREATE TYPE task_profile AS ENUM ('job', 'delegation', 'ledger', 'inference');

CREATE TYPE task_status AS ENUM (
    'pending', 'claimed', 'running', 'waiting_for_approval', 'waiting', 'retry',
    'completed', 'failed', 'cancelled', 'stuck', 'poisoned');

CREATE TYPE task_event AS ENUM (
    'submit', 'claim', 'start', 'release', 'lose_lease', 'complete', 'fail', 'ask_approval',
    'wait', 'approve', 'deny', 'expire_approval', 'wake', 'release_too_often',
    'time_out_pending', 'cancel', 'exceed_deadline', 'report');

-- The domain's table, compared with it by a test. Every transition is looked up here by all of its
-- columns; for an update written by hand, rank decides which event it amounts to.
CREATE TABLE transition (
    rank int NOT NULL,
    profile task_profile NOT NULL,
    from_status task_status NOT NULL,
    event task_event NOT NULL,
    to_status task_status NOT NULL,
    PRIMARY KEY (profile, from_status, event, to_status)
);
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

-- The defaults of each profile that windlass_submit needs; likewise a checked copy.
CREATE TABLE profile (
    profile task_profile PRIMARY KEY,
    max_retries int NOT NULL,
    deadline_ms bigint,
    retention_ms bigint
);
--@profiles
INSERT INTO profile (profile, max_retries, deadline_ms, retention_ms) VALUES
    ('job', 3, NULL, NULL),
    ('delegation', 0, 21600000, NULL),
    ('ledger', 0, 21600000, NULL),
    ('inference', 0, NULL, 604800000);
--@end

CREATE TABLE task_spec (
    id uuid PRIMARY KEY,
    profile task_profile NOT NULL,
    name text,
    queue text NOT NULL,
    payload jsonb NOT NULL,
    priority int NOT NULL DEFAULT 0,
    tags jsonb,
    agent text,
    venture text,
    portfolio text,
    stage text,
    owner text,
    caller text,
    callee text,
    pool text,
    llm text,
    model text,
    tier text,
    parent_id uuid,
    replay_of uuid,
    correlation_id text,
    idempotency_scope text NOT NULL DEFAULT '',
    idempotency_key text,
    request_digest text,
    run_at timestamptz NOT NULL,
    deadline_at timestamptz,
    max_retries int NOT NULL,
    backoff jsonb,
    submitted_by text NOT NULL,
    created_at timestamptz NOT NULL
);

CREATE UNIQUE INDEX task_spec_idempotency ON task_spec (idempotency_scope, idempotency_key)
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
    key text NOT NULL,
    value text NOT NULL,
    created_at timestamptz NOT NULL,
    task_id uuid NOT NULL,
    PRIMARY KEY (key, value, created_at, task_id)
);

-- ---------------------------------------------------------------------------------------------
-- The log's numbers.

-- What is added to PostgreSQL's transaction numbers. Not a table, because every statement needs
-- it; windlass_rebase_log replaces it. Not IMMUTABLE, because plans would keep the old number.
CREATE FUNCTION windlass_xid_base() RETURNS bigint
LANGUAGE sql STABLE PARALLEL SAFE RETURN 0::bigint;

-- The number of this transaction. Every change of a task carries it, or that of the task's change
-- before if that is higher: a transaction takes its number with its first lock, so it may change a
-- task after one with a higher number did. Hence
--   * a task's changes stand in the log, by (xid, seq), in the order in which they happened;
--   * what carries a number was written by a transaction with that number or a lower one, so
--     nothing appears below a number once all transactions below it are over.
CREATE FUNCTION windlass_xid() RETURNS bigint
LANGUAGE sql STABLE RETURN windlass_xid_base() + pg_current_xact_id()::text::bigint;

-- Below this number all transactions are over: a reader that stays below it skips nothing.
CREATE FUNCTION windlass_horizon() RETURNS bigint
LANGUAGE sql STABLE PARALLEL SAFE
RETURN windlass_xid_base() + pg_snapshot_xmin(pg_current_snapshot())::text::bigint;

-- No transaction has this number yet.
CREATE FUNCTION windlass_next_xid() RETURNS bigint
LANGUAGE sql STABLE PARALLEL SAFE
RETURN windlass_xid_base() + pg_snapshot_xmax(pg_current_snapshot())::text::bigint;

CREATE TABLE task_state (
    id uuid PRIMARY KEY,
    profile task_profile NOT NULL,
    queue text NOT NULL,
    status task_status NOT NULL DEFAULT 'pending',
    from_status task_status,
    event task_event NOT NULL DEFAULT 'submit',
    change_id uuid NOT NULL,
    xid bigint NOT NULL DEFAULT windlass_xid(),
    actor text NOT NULL,
    reason text,
    change_lease_id uuid,
    metadata jsonb,
    ready boolean NOT NULL,
    order_key bigint NOT NULL,
    run_at timestamptz NOT NULL,
    deadline_at timestamptz,
    attempt int NOT NULL DEFAULT 0,
    retry_count int NOT NULL DEFAULT 0,
    max_retries int NOT NULL,
    release_count int NOT NULL DEFAULT 0,
    lease_id uuid,
    lease_expires_at timestamptz,
    claim_id uuid,
    claimed_by text,
    claimed_at timestamptz,
    last_heartbeat_at timestamptz,
    stream_started_at timestamptz,
    approval_id uuid,
    result jsonb,
    error jsonb,
    created_at timestamptz NOT NULL,
    started_at timestamptz,
    entered_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    -- Nothing changes after the end, so the last change is the end.
    finished_at timestamptz GENERATED ALWAYS AS (
        CASE WHEN status IN ('completed', 'failed', 'cancelled', 'stuck', 'poisoned')
             THEN updated_at END) STORED
);

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
      AND status IN ('pending', 'claimed', 'running', 'waiting_for_approval', 'waiting', 'retry');
CREATE INDEX task_state_pending_inference ON task_state (entered_at)
    WHERE profile = 'inference' AND status = 'pending';
CREATE INDEX task_state_finished_inference ON task_state (finished_at)
    WHERE profile = 'inference' AND finished_at IS NOT NULL;
CREATE INDEX task_state_pending_ledger ON task_state (created_at, id)
    WHERE profile = 'ledger' AND status = 'pending';
CREATE INDEX task_state_rare ON task_state (status, created_at, id)
    WHERE status IN ('waiting_for_approval', 'waiting', 'retry', 'failed', 'cancelled', 'stuck',
                     'poisoned');

-- What a running task tells about itself. Apart, because a checkpoint of a megabyte must not be
-- rewritten by every heartbeat.
CREATE TABLE task_progress (
    task_id uuid PRIMARY KEY,
    checkpoint jsonb,
    progress jsonb,
    -- The call that told it; an update without a fresh one was written by hand.
    change_id uuid,
    updated_at timestamptz NOT NULL,
    CONSTRAINT checkpoint_is_bounded CHECK (octet_length(checkpoint::text) <= 4194304),
    CONSTRAINT progress_is_bounded CHECK (octet_length(progress::text) <= 262144)
);

CREATE SEQUENCE task_history_seq AS bigint;

-- No foreign key, and no key that lacks `at`: the table can become a partition by time as it is.
CREATE TABLE task_history (
    seq bigint NOT NULL DEFAULT nextval('task_history_seq'),
    xid bigint NOT NULL,
    task_id uuid NOT NULL,
    change_id uuid NOT NULL,
    from_status task_status,
    to_status task_status NOT NULL,
    event task_event NOT NULL,
    actor text NOT NULL,
    reason text,
    lease_id uuid,
    metadata jsonb,
    at timestamptz NOT NULL
);
ALTER SEQUENCE task_history_seq OWNED BY task_history.seq;
CREATE INDEX task_history_task ON task_history (task_id, seq);
CREATE INDEX task_history_position ON task_history (xid, seq);

-- How many tasks ended in which state, up to a position in the history: a duty adds what came
-- since, so that a dashboard counts without a scan of what is finished, and the hot path pays
-- nothing for it.
CREATE TABLE task_tally (
    status task_status PRIMARY KEY,
    ended bigint NOT NULL
);
CREATE TABLE task_tally_position (
    xid bigint NOT NULL,
    seq bigint NOT NULL
);
INSERT INTO task_tally_position VALUES (0, 0);

-- Whether the log has numbers that this cluster has not reached: see windlass_rebase_log.
CREATE FUNCTION windlass_log_is_ahead() RETURNS boolean LANGUAGE sql STABLE
SET search_path FROM CURRENT AS $$
    SELECT greatest((SELECT max(xid) FROM task_history),
                    (SELECT max(xid) FROM task_tally_position)) >= windlass_next_xid()
$$;

-- A dump that is restored into a cluster with lower transaction numbers has a log from the future:
-- nothing new would be read before the cluster has caught up. From here on the numbers continue
-- where the log ended, so a position that somebody kept stays good. Returns the new base, or
-- nothing if all is well.
CREATE FUNCTION windlass_rebase_log() RETURNS bigint LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
DECLARE
    reached bigint;
BEGIN
    IF NOT windlass_log_is_ahead() THEN
        RETURN NULL;
    END IF;
    -- Whoever waits for this lock plans its statement anew, with the new base.
    LOCK TABLE task_state IN ACCESS EXCLUSIVE MODE;
    reached := greatest((SELECT max(xid) FROM task_history),
                        (SELECT max(xid) FROM task_tally_position));
    EXECUTE format('CREATE OR REPLACE FUNCTION windlass_xid_base() RETURNS bigint '
        'LANGUAGE sql STABLE PARALLEL SAFE RETURN %s::bigint', reached);
    RETURN reached;
END $$;

CREATE TYPE approval_status AS ENUM ('open', 'approved', 'denied', 'expired', 'withdrawn');

CREATE TABLE approval (
    id uuid PRIMARY KEY,
    task_id uuid NOT NULL,
    gate text NOT NULL,
    status approval_status NOT NULL DEFAULT 'open',
    expires_at timestamptz,
    created_at timestamptz NOT NULL,
    decided_at timestamptz,
    CONSTRAINT decided_when_not_open CHECK ((status = 'open') = (decided_at IS NULL))
);
CREATE UNIQUE INDEX approval_open ON approval (task_id) WHERE status = 'open';
CREATE INDEX approval_task ON approval (task_id, created_at);
CREATE INDEX approval_expiry ON approval (expires_at)
    WHERE status = 'open' AND expires_at IS NOT NULL;

-- What was done to many tasks at once and leaves no trace with them: retention says how many it
-- removed.
CREATE TABLE audit (
    seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL,
    actor text NOT NULL,
    event text NOT NULL,
    detail jsonb NOT NULL
);

-- ---------------------------------------------------------------------------------------------
-- Refusals. Each says what to do instead.

CREATE FUNCTION windlass_refuse() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    RAISE EXCEPTION 'windlass: % of % is refused: %', lower(TG_OP), TG_TABLE_NAME, TG_ARGV[0]
        USING HINT = 'Use the API or the windlass command; they keep the history true.';
END $$;

CREATE TRIGGER task_spec_is_immutable BEFORE UPDATE OR TRUNCATE ON task_spec
    EXECUTE FUNCTION windlass_refuse('what was submitted never changes');
CREATE TRIGGER task_state_is_not_truncated BEFORE TRUNCATE ON task_state
    EXECUTE FUNCTION windlass_refuse('tasks are removed only by the retention duty');
CREATE TRIGGER task_tag_is_immutable BEFORE UPDATE OR TRUNCATE ON task_tag
    EXECUTE FUNCTION windlass_refuse('what was submitted never changes');
CREATE TRIGGER task_history_is_append_only BEFORE UPDATE OR TRUNCATE ON task_history
    EXECUTE FUNCTION windlass_refuse('history is append-only');
CREATE TRIGGER task_progress_is_not_truncated BEFORE TRUNCATE ON task_progress
    EXECUTE FUNCTION windlass_refuse('tasks are removed only by the retention duty');
CREATE TRIGGER approval_is_not_truncated BEFORE TRUNCATE ON approval
    EXECUTE FUNCTION windlass_refuse('an answer is kept');
CREATE TRIGGER audit_is_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON audit
    EXECUTE FUNCTION windlass_refuse('the record is append-only');
CREATE TRIGGER transition_is_fixed BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON transition
    EXECUTE FUNCTION windlass_refuse('a migration changes the state machine');
CREATE TRIGGER profile_is_fixed BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON profile
    EXECUTE FUNCTION windlass_refuse('a migration changes the profiles');

-- Only the retention duty deletes. It says so for its own transaction, so that nobody deletes by
-- mistake; and whoever says so, too, deletes nothing but what the duty would.
CREATE FUNCTION windlass_refuse_delete() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    IF current_setting('windlass.retention', true) IS DISTINCT FROM 'on' THEN
        RAISE EXCEPTION 'windlass: delete of % is refused: only the retention duty removes rows',
            TG_TABLE_NAME USING HINT = 'Cancel the task instead; its history stays.';
    END IF;
    RETURN NULL;
END $$;

-- The argument names the column that holds the task's id. The state goes last but one: what was
-- submitted goes after it, when nothing of the task is left.
CREATE FUNCTION windlass_check_retention() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
DECLARE
    task uuid := to_jsonb(OLD) ->> TG_ARGV[0];
BEGIN
    IF TG_TABLE_NAME = 'task_spec' AND NOT EXISTS (SELECT 1 FROM task_state WHERE id = task)
        OR EXISTS (
            SELECT 1 FROM task_state st JOIN profile p ON p.profile = st.profile
            WHERE st.id = task AND TG_TABLE_NAME <> 'task_spec'
              AND st.finished_at + p.retention_ms * interval '1 ms' <= clock_timestamp())
    THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'windlass: delete of % is refused: task % is not finished, or must be kept',
        TG_TABLE_NAME, task USING HINT = 'The table profile says what is kept for how long.';
END $$;

CREATE TRIGGER task_spec_is_kept BEFORE DELETE ON task_spec
    EXECUTE FUNCTION windlass_refuse_delete();
CREATE TRIGGER task_state_is_kept BEFORE DELETE ON task_state
    EXECUTE FUNCTION windlass_refuse_delete();
CREATE TRIGGER task_tag_is_kept BEFORE DELETE ON task_tag
    EXECUTE FUNCTION windlass_refuse_delete();
CREATE TRIGGER task_history_is_kept BEFORE DELETE ON task_history
    EXECUTE FUNCTION windlass_refuse_delete();
CREATE TRIGGER task_progress_is_kept BEFORE DELETE ON task_progress
    EXECUTE FUNCTION windlass_refuse_delete();
CREATE TRIGGER approval_is_kept BEFORE DELETE ON approval
    EXECUTE FUNCTION windlass_refuse_delete();
CREATE TRIGGER task_spec_is_kept_while_needed BEFORE DELETE ON task_spec FOR EACH ROW
    EXECUTE FUNCTION windlass_check_retention('id');
CREATE TRIGGER task_state_is_kept_while_needed BEFORE DELETE ON task_state FOR EACH ROW
    EXECUTE FUNCTION windlass_check_retention('id');
CREATE TRIGGER task_tag_is_kept_while_needed BEFORE DELETE ON task_tag FOR EACH ROW
    EXECUTE FUNCTION windlass_check_retention('task_id');
CREATE TRIGGER task_history_is_kept_while_needed BEFORE DELETE ON task_history FOR EACH ROW
    EXECUTE FUNCTION windlass_check_retention('task_id');
CREATE TRIGGER task_progress_is_kept_while_needed BEFORE DELETE ON task_progress FOR EACH ROW
    EXECUTE FUNCTION windlass_check_retention('task_id');
CREATE TRIGGER approval_is_kept_while_needed BEFORE DELETE ON approval FOR EACH ROW
    EXECUTE FUNCTION windlass_check_retention('task_id');

CREATE FUNCTION windlass_refuse_insert() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    IF pg_trigger_depth() < 2 THEN
        RAISE EXCEPTION 'windlass: insert into % is refused: the database writes it',
            TG_TABLE_NAME USING HINT = 'Change or submit the task; the rest follows.';
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER task_history_writes_itself BEFORE INSERT ON task_history
    EXECUTE FUNCTION windlass_refuse_insert();
CREATE TRIGGER task_tag_writes_itself BEFORE INSERT ON task_tag
    EXECUTE FUNCTION windlass_refuse_insert();

-- Whether our JSON contract holds for what did not come through the API: numbers that a 64-bit
-- float can hold, whole ones to the last digit, and no more than 64 levels. Everything else jsonb
-- refuses by itself.
CREATE FUNCTION windlass_json_fits(value jsonb) RETURNS boolean
LANGUAGE sql STABLE PARALLEL SAFE SET extra_float_digits = 1
SET search_path FROM CURRENT AS $$
    SELECT NOT jsonb_path_exists(value,
            'strict $.**{64} ? (@.type() == "object" || @.type() == "array")')
        AND NOT EXISTS (
            SELECT 1
            FROM jsonb_path_query(value, 'strict $.** ? (@.type() == "number")') AS found,
                CAST(found #>> '{}' AS numeric) AS n
            WHERE CASE WHEN abs(n) > 1.7976931348623157e308 THEN TRUE
                WHEN n <> trunc(n) OR n BETWEEN -9223372036854775808 AND 18446744073709551615
                    THEN FALSE
                ELSE n::float8::text::numeric <> n END)
$$;

-- What is wrong with a name, in the words of the API; NULL if nothing is. A label may be empty.
CREATE FUNCTION windlass_name_problem(name text, is_label boolean DEFAULT FALSE) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN CASE
    WHEN name ~ '[\u0001-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]'
        THEN 'must not hold control characters or those that turn the direction of writing'
    WHEN is_label THEN NULL
    WHEN name = '' THEN 'must not be empty'
    WHEN name ~ '^[\u0020\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]'
        OR name ~ '[\u0020\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]$'
        THEN 'must not begin or end with white space; trim it'
    END;

-- What is wrong with a backoff; NULL if nothing is.
CREATE FUNCTION windlass_backoff_problem(backoff jsonb) RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE
SET search_path FROM CURRENT AS $$
    SELECT CASE
        WHEN jsonb_typeof(backoff) <> 'object'
            THEN 'backoff must be an object of base_ms, max_ms, multiplier, jitter, retryable and '
                'non_retryable'
        ELSE coalesce((
            SELECT 'backoff: ' || b.key || ' ' || found
            FROM jsonb_each(backoff) AS b, LATERAL (SELECT CASE
                WHEN b.key IN ('base_ms', 'max_ms') THEN
                    CASE WHEN jsonb_typeof(b.value) <> 'number' OR b.value::text !~ '^\d{1,12}$'
                            OR b.value::text::numeric > 315360000000
                        THEN 'must be an integer from 0 to 315360000000' END
                WHEN b.key = 'multiplier' THEN
                    CASE WHEN jsonb_typeof(b.value) <> 'number' THEN 'must be from 1 to 1000'
                        WHEN b.value::text::numeric NOT BETWEEN 1 AND 1000
                        THEN 'must be from 1 to 1000' END
                WHEN b.key = 'jitter' THEN
                    CASE WHEN jsonb_typeof(b.value) <> 'boolean' THEN 'must be true or false' END
                WHEN b.key IN ('retryable', 'non_retryable') THEN
                    CASE WHEN jsonb_typeof(b.value) <> 'array' THEN 'must be an array of codes'
                        WHEN jsonb_array_length(b.value) > 100 THEN 'may have at most 100 codes'
                        WHEN jsonb_path_exists(b.value, 'strict $[*] ? (@.type() <> "string")')
                            OR EXISTS (SELECT 1 FROM jsonb_array_elements_text(b.value) AS code
                                       WHERE code !~ '^[A-Za-z0-9_.-]{1,100}$')
                        THEN 'may hold only codes of letters, digits, _, . and -' END
                ELSE 'is unknown; it may have base_ms, max_ms, multiplier, jitter, retryable and '
                    'non_retryable' END) AS problem (found)
            WHERE found IS NOT NULL
            ORDER BY b.key LIMIT 1),
            CASE WHEN coalesce((backoff ->> 'max_ms')::numeric, 300000)
                    < coalesce((backoff ->> 'base_ms')::numeric, 1000)
                THEN 'backoff: max_ms must not be less than base_ms' END)
        END
$$;

-- What is wrong with a task that did not come through the API; NULL if nothing is.
CREATE FUNCTION windlass_spec_problem(spec task_spec) RETURNS text
LANGUAGE sql STABLE
SET search_path FROM CURRENT AS $$
    SELECT coalesce(
        (SELECT n.field || ' ' || windlass_name_problem(n.name)
         FROM (VALUES ('queue', spec.queue), ('name', spec.name), ('agent', spec.agent),
                   ('venture', spec.venture), ('portfolio', spec.portfolio), ('stage', spec.stage),
                   ('owner', spec.owner), ('caller', spec.caller), ('callee', spec.callee),
                   ('pool', spec.pool), ('llm', spec.llm), ('model', spec.model),
                   ('tier', spec.tier), ('correlation_id', spec.correlation_id),
                   ('idempotency_key', spec.idempotency_key)) AS n (field, name)
         WHERE windlass_name_problem(n.name) IS NOT NULL LIMIT 1),
        CASE WHEN jsonb_typeof(spec.tags) <> 'object'
                OR jsonb_path_exists(spec.tags, 'strict $.* ? (@.type() <> "string")')
                THEN 'tags must be an object of strings'
            WHEN (SELECT count(*) FROM jsonb_each(spec.tags)) > 64
                THEN 'there may be at most 64 tags' END,
        (SELECT CASE WHEN windlass_name_problem(t.key) IS NOT NULL
                THEN 'the tag''s key "' || t.key || '" ' || windlass_name_problem(t.key)
                ELSE 'the tag ' || t.key || ' ' || windlass_name_problem(t.value, TRUE) END
         FROM jsonb_each_text(spec.tags) AS t
         WHERE windlass_name_problem(t.key) IS NOT NULL
            OR windlass_name_problem(t.value, TRUE) IS NOT NULL LIMIT 1),
        windlass_backoff_problem(spec.backoff),
        CASE WHEN NOT isfinite(spec.created_at)
                OR spec.run_at NOT BETWEEN '1970-01-01Z' AND '9999-12-31Z'
                OR spec.deadline_at NOT BETWEEN '1970-01-01Z' AND '9999-12-31Z'
                THEN 'run_at and deadline_at must be from the year 1970 to 9999'
            WHEN spec.parent_id = spec.id THEN 'parent_id must not be the task''s own id'
            WHEN octet_length(spec.payload::text) > 1048576
                THEN 'the payload takes more than 1048576 bytes; send a reference'
            WHEN NOT windlass_json_fits(spec.payload)
                THEN 'the payload holds a number too large for a 64-bit float, a whole number that '
                    'would lose digits, or is nested more than 64 deep' END)
$$;

-- The API leaves the digest of a request with it; whatever has none is looked at here.
CREATE FUNCTION windlass_check_spec() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
DECLARE
    problem text := windlass_spec_problem(NEW);
BEGIN
    IF problem IS NOT NULL THEN
        RAISE EXCEPTION 'windlass: %', problem;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER task_spec_can_be_read BEFORE INSERT ON task_spec FOR EACH ROW
    WHEN (NEW.request_digest IS NULL)
    EXECUTE FUNCTION windlass_check_spec();

-- Deferred, so it runs when whoever submitted commits: with the rights of the owner.
CREATE FUNCTION windlass_check_begun() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path FROM CURRENT AS $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM task_state WHERE id = NEW.id) THEN
        RAISE EXCEPTION 'windlass: task % is only half a task: it has no row in task_state', NEW.id
            USING HINT = 'Use windlass_submit.';
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER task_spec_begins AFTER INSERT ON task_spec
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (NEW.request_digest IS NULL)
    EXECUTE FUNCTION windlass_check_begun();

-- ---------------------------------------------------------------------------------------------
-- Statements written by hand.

CREATE FUNCTION windlass_complete_manual_update(was task_state, is_now task_state)
RETURNS task_state LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
DECLARE
    found_event task_event;
BEGIN
    IF was.finished_at IS NOT NULL THEN
        RAISE EXCEPTION 'windlass: task % is %; a finished task never changes', was.id, was.status
            USING HINT = 'Replay it: that makes a new task.';
    END IF;
    IF is_now.status <> was.status THEN
        SELECT t.event INTO found_event FROM transition t
        WHERE t.profile = was.profile AND t.from_status = was.status AND t.to_status = is_now.status
        ORDER BY t.rank LIMIT 1;
        IF found_event IS NULL THEN
            RAISE EXCEPTION 'windlass: a task (%) that is % cannot become %',
                was.profile, was.status, is_now.status
                USING HINT = 'docs/state-machine.md shows what may follow what.';
        END IF;
        is_now.event := found_event;
        is_now.entered_at := greatest(date_trunc('milliseconds', clock_timestamp()),
                                   was.updated_at);
    ELSE
        is_now.event := was.event;
        is_now.entered_at := was.entered_at;
    END IF;
    IF NOT windlass_json_fits(is_now.result) OR NOT windlass_json_fits(is_now.error) THEN
        RAISE EXCEPTION 'windlass: the JSON holds a number too large for a 64-bit float, a whole '
            'number that would lose digits, or is nested more than 64 deep';
    END IF;
    IF EXISTS (
        SELECT 1 FROM unnest(ARRAY[
            is_now.run_at, is_now.deadline_at, is_now.lease_expires_at, is_now.claimed_at,
            is_now.last_heartbeat_at, is_now.stream_started_at, is_now.started_at]) AS t (at)
        WHERE t.at NOT BETWEEN '1970-01-01Z' AND '9999-12-31Z')
    THEN
        RAISE EXCEPTION 'windlass: a time must be from the year 1970 to 9999';
    END IF;
    IF octet_length(is_now.claimed_by) > 255 THEN
        RAISE EXCEPTION 'windlass: claimed_by takes more than 255 bytes';
    END IF;
    is_now.from_status := was.status;
    is_now.change_id := gen_random_uuid();
    is_now.actor := 'sql:' || session_user;
    is_now.reason := NULL;
    -- Every failure is kept, this one too.
    is_now.metadata := CASE
        WHEN is_now.status = was.status THEN NULL
        WHEN is_now.error IS NOT NULL AND (is_now.status IN ('failed', 'stuck', 'poisoned')
                OR is_now.error IS DISTINCT FROM was.error)
            THEN jsonb_build_object('error', is_now.error, 'attempt', is_now.attempt, 'session',
                                    was.claimed_by)
        END;
    IF was.approval_id IS NOT NULL AND is_now.status <> was.status THEN
        is_now.metadata := coalesce(is_now.metadata, '{}')
            || jsonb_build_object('approval', was.approval_id);
    END IF;
    is_now.change_lease_id := coalesce(was.lease_id, is_now.lease_id);
    -- The one place where a trigger reads a clock: a statement of ours brings its own time.
    is_now.updated_at := greatest(date_trunc('milliseconds', clock_timestamp()), was.updated_at);
    -- Whoever postpones a task need not know the index it stands in.
    is_now.ready := is_now.ready AND coalesce(is_now.run_at <= is_now.updated_at, TRUE);
    RETURN is_now;
END $$;

-- A task waits for an approval exactly while one is open.
CREATE FUNCTION windlass_settle_approval(is_now task_state) RETURNS void LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    IF is_now.status = 'waiting_for_approval' THEN
        PERFORM 1 FROM approval
        WHERE id = is_now.approval_id AND task_id = is_now.id AND status = 'open';
        IF FOUND THEN
            RETURN;
        END IF;
        -- Moved by hand, it brings its question along.
        IF is_now.from_status <> 'running'
            OR EXISTS (SELECT 1 FROM approval WHERE id = is_now.approval_id)
        THEN
            RAISE EXCEPTION 'windlass: task % has no open approval %', is_now.id, is_now.approval_id
                USING HINT = 'Give it a fresh approval_id; the approval follows.';
        END IF;
        INSERT INTO approval (id, task_id, gate, created_at)
        VALUES (is_now.approval_id, is_now.id, 'by hand', is_now.updated_at);
    ELSE
        UPDATE approval SET decided_at = is_now.updated_at, status = CASE is_now.event
            WHEN 'approve' THEN 'approved' WHEN 'deny' THEN 'denied'
            WHEN 'expire_approval' THEN 'expired' ELSE 'withdrawn' END::approval_status
        WHERE task_id = is_now.id AND status = 'open';
    END IF;
END $$;

-- Called only when one of its three cases is met. One trigger for all of them, because every
-- statement pays for every trigger's condition.
CREATE FUNCTION windlass_guard_update() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    IF NEW.id <> OLD.id OR NEW.profile <> OLD.profile OR NEW.queue <> OLD.queue
        OR NEW.created_at <> OLD.created_at OR NEW.max_retries <> OLD.max_retries
    THEN
        RAISE EXCEPTION
            'windlass: update of task_state is refused: what was submitted never changes';
    END IF;
    IF NEW.status = OLD.status AND (NEW.lease_id <> OLD.lease_id OR NEW.attempt <> OLD.attempt) THEN
        RAISE EXCEPTION 'windlass: the lease and the attempt of task % change only when it is '
            'claimed or given up', OLD.id;
    END IF;
    IF NEW.change_id = OLD.change_id OR NEW.from_status IS DISTINCT FROM OLD.status THEN
        NEW := windlass_complete_manual_update(OLD, NEW);
    END IF;
    IF NEW.updated_at < OLD.updated_at THEN
        RAISE EXCEPTION 'windlass: task % was changed at %, so it cannot change before that',
            OLD.id, OLD.updated_at;
    END IF;
    NEW.xid := greatest(OLD.xid, windlass_xid());
    IF (NEW.status = 'waiting_for_approval' OR OLD.status = 'waiting_for_approval')
        AND (NEW.status <> OLD.status OR NEW.approval_id IS DISTINCT FROM OLD.approval_id)
    THEN
        PERFORM windlass_settle_approval(NEW);
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER task_state_guard_update BEFORE UPDATE ON task_state FOR EACH ROW
    WHEN (NEW.change_id = OLD.change_id OR NEW.from_status IS DISTINCT FROM OLD.status
          OR NEW.xid <= OLD.xid OR NEW.updated_at < OLD.updated_at
          OR NEW.status = OLD.status
              AND (NEW.lease_id <> OLD.lease_id OR NEW.attempt <> OLD.attempt)
          OR NEW.id <> OLD.id OR NEW.profile <> OLD.profile OR NEW.queue <> OLD.queue
          OR NEW.created_at <> OLD.created_at OR NEW.max_retries <> OLD.max_retries
          OR NEW.status = 'waiting_for_approval' OR OLD.status = 'waiting_for_approval')
    EXECUTE FUNCTION windlass_guard_update();
CREATE TRIGGER task_state_begins_at_submit BEFORE INSERT ON task_state FOR EACH ROW
    WHEN (NEW.from_status IS NOT NULL)
    EXECUTE FUNCTION windlass_refuse('a task begins as pending');

-- ---------------------------------------------------------------------------------------------
-- Approvals: a task waits for an approval exactly while one is open.

CREATE FUNCTION windlass_check_approval_task() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    IF NEW.status <> 'open' THEN
        RAISE EXCEPTION 'windlass: an approval begins open';
    END IF;
    -- Locked, so that the task cannot end while it asks.
    PERFORM 1 FROM task_state WHERE id = NEW.task_id AND status = 'running' FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'windlass: task % is not running, so it cannot ask for an approval',
            NEW.task_id;
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER approval_is_asked_by_a_running_task BEFORE INSERT ON approval FOR EACH ROW
    EXECUTE FUNCTION windlass_check_approval_task();
-- Looked at when everything is done: the task asks in the same transaction.
CREATE FUNCTION windlass_check_approval_awaited() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path FROM CURRENT AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM approval WHERE id = NEW.id AND status = 'open') AND NOT EXISTS (
        SELECT 1 FROM task_state WHERE id = NEW.task_id AND approval_id = NEW.id)
    THEN
        RAISE EXCEPTION 'windlass: approval % is open, but task % does not wait for it',
            NEW.id, NEW.task_id
            USING HINT = 'Move the task in the same transaction; its approval follows.';
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER approval_is_awaited AFTER INSERT ON approval
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    EXECUTE FUNCTION windlass_check_approval_awaited();

CREATE TRIGGER approval_is_answered_once BEFORE UPDATE ON approval FOR EACH ROW
    WHEN (NEW.id <> OLD.id OR NEW.task_id <> OLD.task_id OR NEW.gate <> OLD.gate
          OR NEW.created_at <> OLD.created_at
          OR OLD.status <> 'open' AND (NEW.status <> OLD.status
              OR NEW.decided_at IS DISTINCT FROM OLD.decided_at))
    EXECUTE FUNCTION windlass_refuse('an answer is written once');

-- The task's own transition closes the approval; nothing else may while the task waits for it.
CREATE FUNCTION windlass_check_approval_closing() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    IF pg_trigger_depth() < 2 AND EXISTS (
        SELECT 1 FROM task_state WHERE id = NEW.task_id AND approval_id = NEW.id)
    THEN
        RAISE EXCEPTION 'windlass: task % waits for approval %', NEW.task_id, NEW.id
            USING HINT = 'Move the task; its approval follows.';
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER approval_closes_with_its_task BEFORE UPDATE ON approval FOR EACH ROW
    WHEN (OLD.status = 'open' AND NEW.status <> 'open')
    EXECUTE FUNCTION windlass_check_approval_closing();

CREATE FUNCTION windlass_check_progress_task() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM 1 FROM task_state WHERE id = NEW.task_id AND finished_at IS NULL;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'windlass: task % is finished or unknown; its progress never changes',
            NEW.task_id;
    END IF;
    IF TG_OP = 'UPDATE' AND NEW.task_id <> OLD.task_id THEN
        RAISE EXCEPTION 'windlass: the progress of task % cannot be given to another', OLD.task_id;
    END IF;
    -- By hand: what the API has looked at is looked at here.
    IF NEW.change_id IS NULL OR TG_OP = 'UPDATE' AND NEW.change_id = OLD.change_id THEN
        IF NOT windlass_json_fits(NEW.checkpoint) OR NOT windlass_json_fits(NEW.progress) THEN
            RAISE EXCEPTION 'windlass: the JSON holds a number too large for a 64-bit float, a '
                'whole number that would lose digits, or is nested more than 64 deep';
        END IF;
        NEW.change_id := gen_random_uuid();
        NEW.updated_at := date_trunc('milliseconds', clock_timestamp());
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER task_progress_of_a_living_task BEFORE INSERT OR UPDATE ON task_progress
    FOR EACH ROW EXECUTE FUNCTION windlass_check_progress_task();

-- ---------------------------------------------------------------------------------------------
-- History.

CREATE FUNCTION windlass_refuse_transition(task task_state) RETURNS task_event
LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    RAISE EXCEPTION 'windlass: legal_transition: task % (%) that is % cannot become % by %',
        task.id, task.profile, task.from_status, task.status, task.event
        USING ERRCODE = 'check_violation', CONSTRAINT = 'legal_transition',
              HINT = 'docs/state-machine.md shows what may follow what.';
END $$;

CREATE FUNCTION windlass_refuse_beginning(task task_state) RETURNS uuid LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    RAISE EXCEPTION 'windlass: task % does not begin as it was submitted, or was not', task.id
        USING HINT = 'Use windlass_submit.';
END $$;

-- A row breaks a rule of its table.
CREATE FUNCTION windlass_refuse_row(relation text, id uuid, rule text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'windlass: %: % % breaks the rule %', relation, relation, id, rule
        USING ERRCODE = 'check_violation', CONSTRAINT = rule,
              HINT = 'The rules stand in the trigger functions of the table.';
END $$;

-- The rules of what is submitted, and below those of a task's state. They are no CHECK constraints:
-- PostgreSQL reads and plans every check anew for every statement, which was two fifths of the time
-- of a submit. The plan of a trigger function is kept.
CREATE FUNCTION windlass_check_rules() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
DECLARE
    broken record;
BEGIN
    SELECT c.id, r.rule INTO broken
    FROM changed c, LATERAL (
        SELECT CASE
            WHEN (octet_length(queue) BETWEEN 1 AND 255 AND octet_length(name) <= 255 AND
                octet_length(agent) <= 255 AND octet_length(venture) <= 255 AND
                octet_length(portfolio) <= 255 AND octet_length(stage) <= 255 AND
                octet_length(owner) <= 255 AND octet_length(caller) <= 255 AND
                octet_length(callee) <= 255 AND octet_length(pool) <= 255 AND
                octet_length(llm) <= 255 AND octet_length(model) <= 255 AND
                octet_length(tier) <= 255 AND octet_length(correlation_id) <= 255 AND
                octet_length(idempotency_scope) <= 255 AND octet_length(idempotency_key) <=
                255 AND octet_length(submitted_by) BETWEEN 1 AND 255) IS FALSE
                THEN 'names_are_bounded'
            WHEN (priority BETWEEN -32768 AND 32767) IS FALSE
                THEN 'priority_is_bounded'
            WHEN (profile NOT IN ('delegation', 'ledger') OR (caller IS NOT NULL AND callee
                IS NOT NULL)) IS FALSE
                THEN 'a_delegation_names_both_sides'
            WHEN (profile <> 'inference' OR pool IS NOT NULL) IS FALSE
                THEN 'an_inference_names_its_pool'
        END AS rule) r
    WHERE r.rule IS NOT NULL
    LIMIT 1;
    IF FOUND THEN
        PERFORM windlass_refuse_row('task_spec', broken.id, broken.rule);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER task_spec_keeps_its_rules AFTER INSERT ON task_spec
    REFERENCING NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION windlass_check_rules();

-- Checks the rows, writes what happened, and refuses what may not happen: a row that finds no
-- partner in the machine's table has no legal event.
CREATE FUNCTION windlass_write_history() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
DECLARE
    mine bigint := windlass_xid();
    -- A made-up number must not put the task's changes out of sight.
    highest bigint := greatest(mine, windlass_next_xid() - 1);
    broken record;
BEGIN
    SELECT c.id, r.rule INTO broken
    FROM changed c, LATERAL (
        SELECT CASE
            WHEN (from_status IS NOT NULL OR (event = 'submit' AND status = 'pending')) IS FALSE
                THEN 'legal_transition_at_the_beginning'
            WHEN (finished_at IS NULL OR from_status <> status) IS FALSE
                THEN 'legal_transition_before_the_end'
            WHEN (CASE WHEN profile = 'ledger' THEN lease_id IS NULL ELSE (status IN
                ('claimed', 'running')) = (lease_id IS NOT NULL) END) IS FALSE
                THEN 'lease_only_while_held'
            WHEN (CASE WHEN status IN ('claimed', 'running') THEN lease_expires_at IS NOT
                NULL OR profile IN ('delegation', 'ledger') ELSE lease_expires_at IS NULL
                END) IS FALSE
                THEN 'lease_expiry_only_while_held'
            WHEN (CASE WHEN status IN ('claimed', 'running') THEN claimed_by IS NOT NULL
                ELSE claimed_by IS NULL OR finished_at IS NOT NULL END) IS FALSE
                THEN 'holder_while_held'
            WHEN (status NOT IN ('failed', 'stuck', 'poisoned') OR error IS NOT NULL) IS FALSE
                THEN 'error_says_why_it_ended'
            -- Readers rely on it: one row that they cannot read would spoil every page it is on.
            WHEN (error IS NULL OR CASE WHEN jsonb_typeof(error -> 'code') = 'string' THEN
                coalesce(jsonb_typeof(error -> 'message'), 'string') = 'string' AND error -
                ARRAY['code', 'message', 'detail'] = '{}' ELSE FALSE END) IS FALSE
                THEN 'error_has_a_code'
            WHEN (result IS NULL OR status = 'completed') IS FALSE
                THEN 'result_only_when_completed'
            WHEN ((status = 'waiting_for_approval') = (approval_id IS NOT NULL)) IS FALSE
                THEN 'approval_exactly_while_waiting_for_it'
            WHEN (retry_count BETWEEN 0 AND max_retries AND max_retries BETWEEN 0 AND 100) IS FALSE
                THEN 'retries_are_bounded'
            WHEN (octet_length(actor) BETWEEN 1 AND 255) IS FALSE
                THEN 'actor_is_bounded'
            WHEN (attempt BETWEEN 0 AND 1000000000 AND release_count BETWEEN 0 AND 20) IS FALSE
                THEN 'counters_are_bounded'
            WHEN (NOT ready OR (status IN ('pending', 'retry') AND profile <> 'ledger')) IS FALSE
                THEN 'ready_only_when_claimable'
        END AS rule) r
    WHERE r.rule IS NOT NULL
    LIMIT 1;
    IF FOUND THEN
        PERFORM windlass_refuse_row('task_state', broken.id, broken.rule);
    END IF;
    IF TG_OP = 'INSERT' THEN
        INSERT INTO task_history (xid, task_id, change_id, to_status, event, actor, reason,
                                  metadata, at)
        SELECT mine, coalesce((
                   SELECT s.id FROM task_spec s
                   WHERE s.id = c.id AND s.profile = c.profile AND s.queue = c.queue
                     AND s.run_at = c.run_at AND s.max_retries = c.max_retries
                     AND s.created_at = c.created_at), windlass_refuse_beginning(c)),
               change_id, status, event, actor, reason, metadata, updated_at
        FROM changed c;
        RETURN NULL;
    END IF;
    INSERT INTO task_history (xid, task_id, change_id, from_status, to_status, event, actor,
                              reason, lease_id, metadata, at)
    SELECT least(greatest(c.xid, mine), highest), c.id, c.change_id, c.from_status, c.status,
           coalesce(t.event, windlass_refuse_transition(c)), c.actor, c.reason,
           c.change_lease_id, c.metadata, c.updated_at
    FROM changed c
    LEFT JOIN transition t ON t.profile = c.profile AND t.from_status = c.from_status
        AND t.event = c.event AND t.to_status = c.status
    WHERE c.from_status <> c.status;
    RETURN NULL;
END $$;

CREATE TRIGGER task_state_insert_history AFTER INSERT ON task_state
    REFERENCING NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION windlass_write_history();
CREATE TRIGGER task_state_update_history AFTER UPDATE ON task_state
    REFERENCING NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION windlass_write_history();

CREATE FUNCTION windlass_write_tags() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    IF jsonb_typeof(NEW.tags) <> 'object' OR EXISTS (
        SELECT 1 FROM jsonb_each(NEW.tags) AS t
        WHERE jsonb_typeof(t.value) <> 'string' OR octet_length(t.key) NOT BETWEEN 1 AND 255
            OR octet_length(t.value #>> '{}') > 255)
    THEN
        RAISE EXCEPTION 'windlass: tags must be an object of strings of at most 255 bytes';
    END IF;
    INSERT INTO task_tag (key, value, created_at, task_id)
    SELECT t.key, t.value, NEW.created_at, NEW.id FROM jsonb_each_text(NEW.tags) AS t;
    RETURN NULL;
END $$;

CREATE TRIGGER task_spec_tags AFTER INSERT ON task_spec FOR EACH ROW
    WHEN (NEW.tags IS NOT NULL) EXECUTE FUNCTION windlass_write_tags();

-- ---------------------------------------------------------------------------------------------
-- What a person reads.

CREATE VIEW task AS
SELECT s.id,
       CASE s.profile WHEN 'ledger' THEN 'delegation' ELSE s.profile::text END AS kind,
       CASE s.profile WHEN 'ledger' THEN 'ledger' ELSE 'executed' END AS mode,
       s.name, s.queue, st.status, s.payload, st.result, st.error,
       p.checkpoint, p.progress, s.priority, s.tags, s.agent, s.venture, s.portfolio, s.stage,
       s.owner, s.caller, s.callee, s.pool, s.llm, s.model, s.tier, s.parent_id, s.replay_of,
       (SELECT count(*) FROM task_spec r WHERE r.replay_of = s.id) AS replay_count,
       s.correlation_id, s.idempotency_key, st.attempt, st.retry_count, st.max_retries,
       st.release_count, st.run_at, st.deadline_at, st.claimed_by, st.claimed_at,
       st.lease_expires_at, st.last_heartbeat_at, st.stream_started_at, s.created_at,
       st.started_at, st.updated_at, st.finished_at
FROM task_spec s
JOIN task_state st ON st.id = s.id
LEFT JOIN task_progress p ON p.task_id = s.id;

CREATE TRIGGER task_is_read_only INSTEAD OF INSERT OR UPDATE OR DELETE ON task FOR EACH ROW
    EXECUTE FUNCTION windlass_refuse('it is a view of task_spec, task_state and task_progress');

CREATE VIEW task_failure AS
SELECT task_id, seq, metadata -> 'error' AS error, (metadata ->> 'attempt')::int AS attempt,
       metadata ->> 'session' AS session, at
FROM task_history
WHERE metadata ? 'error';

-- The place of a ready task in its queue, as domain::order computes it; a test compares the two.
-- STABLE, because what it calls is: otherwise it would not be inlined.
CREATE FUNCTION windlass_order_key(priority int, run_at timestamptz) RETURNS bigint
LANGUAGE sql STABLE PARALLEL SAFE
RETURN -priority::bigint * 35184372088832
    + least(floor(extract(epoch FROM run_at) * 1000)::bigint, 35184372088831);

-- ---------------------------------------------------------------------------------------------
-- Submitting inside the caller's own transaction: it commits or vanishes with it.

-- What is wrong with the options, in the words of the API; NULL if nothing is. What they make of
-- the task is looked at by windlass_spec_problem.
CREATE FUNCTION windlass_options_problem(kind text, options jsonb) RETURNS text
LANGUAGE sql STABLE
SET search_path FROM CURRENT AS $$
    WITH option AS (
        SELECT key, value, jsonb_typeof(value) AS type, value #>> '{}' AS text
        FROM jsonb_each(options))
    SELECT coalesce((
        SELECT CASE
            WHEN key IN ('priority', 'max_retries', 'delay_ms', 'deadline_ms') THEN CASE
                WHEN type <> 'number' OR text !~ '^-?\d{1,15}$' THEN key || ' must be an integer'
                WHEN key = 'priority' AND text::bigint NOT BETWEEN -32768 AND 32767
                    THEN 'priority must be from -32768 to 32767'
                WHEN key = 'max_retries' AND text::bigint NOT BETWEEN 0 AND 100
                    THEN 'max_retries must be from 0 to 100'
                WHEN key LIKE '%\_ms' AND text::bigint NOT BETWEEN 0 AND 315360000000
                    THEN key || ' must be from 0 to 315360000000' END
            WHEN key IN ('id', 'parent_id') THEN CASE
                WHEN type <> 'string' OR text !~* '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'
                    THEN key || ' must be a UUID' END
            WHEN key IN ('run_at', 'deadline_at') THEN CASE
                WHEN type <> 'string' OR text !~ ('^\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d(:\d\d(\.\d+)?)?'
                        '([Zz]|[+-]\d\d(:?\d\d)?)$')
                    THEN key || ' must be an instant such as 2030-01-31T12:00:00Z, from the year '
                        '1970 to 9999' END
            WHEN key IN ('tags', 'backoff') THEN NULL
            WHEN type <> 'string' THEN key || ' must be a string' END AS found
        FROM option ORDER BY found LIMIT 1),
        CASE
        WHEN kind NOT IN ('job', 'delegation', 'inference')
            THEN 'kind must be job, delegation or inference'
        WHEN NOT options ? 'kind' AND options ?& ARRAY['pool', 'callee']
            THEN 'give either pool (an inference) or callee (a delegation), not both'
        WHEN options ->> 'mode' NOT IN ('executed', 'ledger')
            THEN 'mode must be executed or ledger'
        WHEN kind <> 'delegation' AND options ?| ARRAY['mode', 'caller', 'callee']
            THEN 'mode, caller and callee belong to kind delegation'
        WHEN kind <> 'inference' AND options ?| ARRAY['pool', 'llm', 'model', 'tier']
            THEN 'pool, llm, model and tier belong to kind inference'
        WHEN options ?& ARRAY['run_at', 'delay_ms']
            THEN 'give either run_at or delay_ms, not both'
        WHEN options ?& ARRAY['deadline_at', 'deadline_ms']
            THEN 'give either deadline_at or deadline_ms, not both'
        END)
$$;

-- Whether two tasks were asked for in the same words. A span is counted from the submit.
CREATE FUNCTION windlass_same_request(one task_spec, other task_spec) RETURNS boolean
LANGUAGE sql STABLE
SET search_path FROM CURRENT AS $$
    SELECT (one.profile, one.name, one.queue, one.payload, one.priority, one.tags, one.agent,
            one.venture, one.portfolio, one.stage, one.owner, one.caller, one.callee, one.pool,
            one.llm, one.model, one.tier, one.parent_id, one.replay_of, one.correlation_id,
            one.max_retries, one.backoff)
        IS NOT DISTINCT FROM
           (other.profile, other.name, other.queue, other.payload, other.priority, other.tags,
            other.agent, other.venture, other.portfolio, other.stage, other.owner, other.caller,
            other.callee, other.pool, other.llm, other.model, other.tier, other.parent_id,
            other.replay_of, other.correlation_id, other.max_retries, other.backoff)
        AND (one.run_at = other.run_at
             OR one.run_at - one.created_at = other.run_at - other.created_at)
        AND (one.deadline_at IS NOT DISTINCT FROM other.deadline_at
             OR one.deadline_at - one.created_at = other.deadline_at - other.created_at)
$$;

-- Runs with the rights of its owner: whoever may execute it may submit, and nothing else.
CREATE FUNCTION windlass_submit(queue text, payload jsonb, options jsonb DEFAULT '{}')
RETURNS uuid LANGUAGE plpgsql SECURITY DEFINER
SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    now_ms timestamptz := date_trunc('milliseconds', clock_timestamp());
    kind text;
    wanted task_spec%ROWTYPE;
    found task_spec%ROWTYPE;
    problem text;
BEGIN
    options := coalesce(options, '{}');
    IF jsonb_typeof(options) <> 'object' THEN
        RAISE EXCEPTION 'windlass: the options must be an object';
    END IF;
    SELECT string_agg(k, ', ') INTO problem FROM jsonb_object_keys(options) AS k
    WHERE k NOT IN ('id', 'kind', 'mode', 'name', 'priority', 'tags', 'agent', 'venture',
                    'portfolio', 'stage', 'owner', 'caller', 'callee', 'pool', 'llm', 'model',
                    'tier', 'parent_id', 'correlation_id', 'idempotency_key', 'run_at',
                    'delay_ms', 'deadline_at', 'deadline_ms', 'max_retries', 'backoff');
    IF problem IS NOT NULL THEN
        RAISE EXCEPTION 'windlass: unknown option: %', problem;
    END IF;
    -- A null says as much as nothing.
    SELECT coalesce(jsonb_object_agg(o.key, o.value), '{}') INTO options
    FROM jsonb_each(options) AS o WHERE o.value <> 'null';
    kind := coalesce(options ->> 'kind', CASE WHEN options ? 'pool' THEN 'inference'
        WHEN options ? 'callee' THEN 'delegation' ELSE 'job' END);
    problem := coalesce(windlass_options_problem(kind, options),
                        windlass_backoff_problem(options -> 'backoff'));
    IF problem IS NOT NULL THEN
        RAISE EXCEPTION 'windlass: %', problem;
    END IF;
    SELECT p.profile, p.max_retries, now_ms + p.deadline_ms * interval '1 ms'
    INTO wanted.profile, wanted.max_retries, wanted.deadline_at
    FROM profile p
    WHERE p.profile::text = CASE WHEN options ->> 'mode' = 'ledger' THEN 'ledger' ELSE kind END;
    -- A UUIDv7: 48 bits of milliseconds, then what gen_random_uuid gives.
    wanted.id := coalesce((options ->> 'id')::uuid, (
        lpad(to_hex((extract(epoch FROM now_ms) * 1000)::bigint), 12, '0') || '7'
        || substr(replace(gen_random_uuid()::text, '-', ''), 14))::uuid);
    wanted.name := options ->> 'name';
    wanted.queue := coalesce(windlass_submit.queue, options ->> CASE kind
        WHEN 'job' THEN 'agent' WHEN 'delegation' THEN 'callee' ELSE 'pool' END);
    wanted.payload := windlass_submit.payload;
    wanted.priority := coalesce((options ->> 'priority')::int, 0);
    wanted.tags := nullif(options -> 'tags', '{}');
    wanted.agent := options ->> 'agent';
    wanted.venture := options ->> 'venture';
    wanted.portfolio := options ->> 'portfolio';
    wanted.stage := options ->> 'stage';
    wanted.owner := options ->> 'owner';
    wanted.caller := options ->> 'caller';
    wanted.callee := options ->> 'callee';
    wanted.pool := options ->> 'pool';
    wanted.llm := options ->> 'llm';
    wanted.model := options ->> 'model';
    wanted.tier := options ->> 'tier';
    wanted.parent_id := (options ->> 'parent_id')::uuid;
    wanted.correlation_id := options ->> 'correlation_id';
    wanted.idempotency_scope := coalesce(options ->> 'caller', '');
    wanted.idempotency_key := options ->> 'idempotency_key';
    wanted.run_at := coalesce(date_trunc('milliseconds', (options ->> 'run_at')::timestamptz),
        now_ms + coalesce((options ->> 'delay_ms')::bigint, 0) * interval '1 ms');
    wanted.deadline_at := coalesce(
        date_trunc('milliseconds', (options ->> 'deadline_at')::timestamptz),
        now_ms + (options ->> 'deadline_ms')::bigint * interval '1 ms', wanted.deadline_at);
    wanted.max_retries := coalesce((options ->> 'max_retries')::int, wanted.max_retries);
    -- As the API keeps it: with what was left out.
    wanted.backoff := '{"base_ms": 1000, "max_ms": 300000, "multiplier": 2, "jitter": true,
        "retryable": [], "non_retryable": []}'::jsonb || (options -> 'backoff');
    wanted.submitted_by := 'sql:' || session_user;
    wanted.created_at := now_ms;
    INSERT INTO task_spec VALUES (wanted.*) ON CONFLICT DO NOTHING RETURNING * INTO found;
    IF found.id IS NULL THEN
        -- The same id or key again is the same task, as everywhere; the key decides over the id,
        -- and whoever delegates twice delegated once.
        SELECT s.* INTO found FROM task_spec s
        WHERE s.id = wanted.id
           OR (s.idempotency_scope = wanted.idempotency_scope
               AND s.idempotency_key = wanted.idempotency_key)
        ORDER BY s.id = wanted.id LIMIT 1;
        IF found.id IS NULL THEN
            RAISE EXCEPTION 'windlass: a task with this id or key has just been submitted'
                USING ERRCODE = 'serialization_failure', HINT = 'Try again.';
        ELSIF kind <> 'delegation' AND NOT windlass_same_request(wanted, found) THEN
            RAISE EXCEPTION
                'windlass: the id or idempotency key was used before with another request';
        END IF;
        RETURN found.id;
    END IF;
    INSERT INTO task_state (id, profile, queue, change_id, actor, ready, order_key, run_at,
        deadline_at, max_retries, created_at, entered_at, updated_at)
    VALUES (found.id, found.profile, found.queue, found.id, found.submitted_by,
        found.run_at <= now_ms AND found.profile <> 'ledger',
        windlass_order_key(found.priority, found.run_at), found.run_at, found.deadline_at,
        found.max_retries, now_ms, now_ms, now_ms);
    PERFORM pg_notify('windlass_ready', found.queue);
    RETURN found.id;
END $$;
REVOKE EXECUTE ON FUNCTION windlass_submit(text, jsonb, jsonb) FROM PUBLIC;
