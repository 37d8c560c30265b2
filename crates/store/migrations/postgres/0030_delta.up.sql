-- Where the deltas of a running attempt are. They are in one node's memory and never stored one by
-- one; this row, written once with the first of them, tells the other nodes where to ask.
CREATE TABLE delta_source (
    task_id uuid PRIMARY KEY,
    attempt integer NOT NULL CHECK (attempt > 0),
    node_id uuid NOT NULL,
    started_at timestamptz NOT NULL,
    -- Until when a node that cannot reach `node_id` wants chunks.
    wanted_until timestamptz,
    -- How many deltas there were, once the attempt is over and all of them are in chunks.
    total bigint CHECK (total >= 0)
);
CREATE INDEX delta_source_wanted ON delta_source (node_id) WHERE wanted_until IS NOT NULL;

-- What such a node gets: the deltas of about a tenth of a second together, as a JSON array. Text,
-- not jsonb: nobody asks for a part of it.
CREATE TABLE delta_chunk (
    task_id uuid NOT NULL,
    attempt integer NOT NULL,
    from_index bigint NOT NULL CHECK (from_index >= 0),
    deltas text NOT NULL,
    PRIMARY KEY (task_id, attempt, from_index)
);
