-- What the running service knows of itself; migrations/postgres/0002_service.up.sql says more.

CREATE TABLE session (
    id TEXT PRIMARY KEY NOT NULL CHECK (length(id) = 36),
    name TEXT NOT NULL,
    worker_type TEXT,
    routes TEXT NOT NULL CHECK (json_valid(routes)),
    slots INTEGER NOT NULL,
    lease_ms INTEGER,
    node TEXT,
    stream_epoch INTEGER NOT NULL DEFAULT 0,
    expires_at INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    closed_at INTEGER,
    close_reason TEXT,
    CONSTRAINT names_are_bounded CHECK (
        length(CAST(name AS BLOB)) BETWEEN 1 AND 100
        AND (worker_type IS NULL OR length(CAST(worker_type AS BLOB)) <= 100)),
    CONSTRAINT slots_are_bounded CHECK (slots BETWEEN 1 AND 1000),
    CONSTRAINT a_reason_when_closed CHECK ((closed_at IS NULL) = (close_reason IS NULL))
) STRICT, WITHOUT ROWID;
CREATE INDEX session_expiry ON session (expires_at) WHERE closed_at IS NULL;
CREATE INDEX session_open ON session (created_at, id) WHERE closed_at IS NULL;
CREATE INDEX session_recent ON session (created_at, id);
CREATE INDEX session_closed ON session (closed_at) WHERE closed_at IS NOT NULL;

CREATE TABLE node (
    id TEXT PRIMARY KEY NOT NULL CHECK (length(id) = 36),
    url TEXT,
    version TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX node_expiry ON node (expires_at);

CREATE TABLE duty (
    name TEXT PRIMARY KEY NOT NULL,
    node TEXT NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
