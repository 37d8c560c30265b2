-- What the running service knows of itself: workers' sessions, nodes, and who does which duty.
-- Nothing here is the truth about a task: leases are, and they stand in task_state.

CREATE TABLE session (
    id uuid PRIMARY KEY,
    name text NOT NULL,
    worker_type text,
    -- queues, pools, kinds and the rest of what it takes, as it asked for them.
    routes jsonb NOT NULL,
    slots integer NOT NULL,
    lease_ms bigint,
    -- The node that holds its stream. Each bind raises the epoch, so that the close of an older
    -- stream, which may be noticed late, does not take the newer one away.
    node uuid,
    stream_epoch bigint NOT NULL DEFAULT 0,
    expires_at timestamptz NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    closed_at timestamptz,
    close_reason text,
    CONSTRAINT names_are_bounded CHECK (
        octet_length(name) BETWEEN 1 AND 100
        AND (worker_type IS NULL OR octet_length(worker_type) <= 100)),
    CONSTRAINT slots_are_bounded CHECK (slots BETWEEN 1 AND 1000),
    CONSTRAINT a_reason_when_closed CHECK ((closed_at IS NULL) = (close_reason IS NULL))
) WITH (fillfactor = 70);
CREATE INDEX session_expiry ON session (expires_at) WHERE closed_at IS NULL;
CREATE INDEX session_open ON session (created_at, id) WHERE closed_at IS NULL;
CREATE INDEX session_recent ON session (created_at, id);
CREATE INDEX session_closed ON session (closed_at) WHERE closed_at IS NOT NULL;

CREATE TABLE node (
    id uuid PRIMARY KEY,
    url text,
    version text NOT NULL,
    started_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL
) WITH (fillfactor = 70);
CREATE INDEX node_expiry ON node (expires_at);

-- Each duty runs on one node at a time: the one that holds its row.
CREATE TABLE duty (
    name text PRIMARY KEY,
    node uuid NOT NULL,
    expires_at timestamptz NOT NULL
) WITH (fillfactor = 70);
