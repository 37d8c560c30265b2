-- Where the deltas of a running attempt are; migrations/postgres/0030_delta.up.sql says more. An
-- embedded database has one node, which asks nobody; the tables are here so that there is one way.
CREATE TABLE delta_source (
    task_id TEXT PRIMARY KEY NOT NULL,
    attempt INTEGER NOT NULL CHECK (attempt > 0),
    node_id TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    wanted_until INTEGER,
    total INTEGER CHECK (total >= 0)
) STRICT, WITHOUT ROWID;
CREATE INDEX delta_source_wanted ON delta_source (node_id) WHERE wanted_until IS NOT NULL;

CREATE TABLE delta_chunk (
    task_id TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    from_index INTEGER NOT NULL CHECK (from_index >= 0),
    deltas TEXT NOT NULL,
    PRIMARY KEY (task_id, attempt, from_index)
) STRICT, WITHOUT ROWID;
