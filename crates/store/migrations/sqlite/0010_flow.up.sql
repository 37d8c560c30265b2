-- Flow control; migrations/postgres/0010_flow.up.sql says more.
-- One writer: a lane counts for itself, and what a key holds is the sum of its lanes.

CREATE TABLE lane (
    id INTEGER PRIMARY KEY,
    queue TEXT NOT NULL,
    profile TEXT NOT NULL,
    venture TEXT NOT NULL,
    portfolio TEXT NOT NULL,
    stage TEXT NOT NULL,
    agent TEXT NOT NULL,
    active INTEGER NOT NULL DEFAULT 0,
    pending INTEGER NOT NULL DEFAULT 0,
    UNIQUE (queue, profile, venture, portfolio, stage, agent)
) STRICT;
CREATE INDEX lane_venture ON lane (venture) WHERE venture <> '';
CREATE INDEX lane_portfolio ON lane (portfolio) WHERE portfolio <> '';
CREATE INDEX lane_stage ON lane (stage) WHERE stage <> '';
CREATE INDEX lane_agent ON lane (agent) WHERE agent <> '';

-- What is held of each key. A ledger is a record of work that others do: it counts for nothing.
CREATE VIEW limit_use AS
WITH counted AS (SELECT * FROM lane WHERE profile <> 'ledger')
SELECT 'global:' AS key, sum(active) AS active, sum(pending) AS pending FROM counted
UNION ALL
SELECT 'portfolio:' || portfolio, sum(active), sum(pending)
FROM counted WHERE portfolio <> '' GROUP BY portfolio
UNION ALL
SELECT 'venture:' || venture, sum(active), sum(pending)
FROM counted WHERE venture <> '' GROUP BY venture
UNION ALL
SELECT 'stage:' || stage, sum(active), sum(pending)
FROM counted WHERE stage <> '' GROUP BY stage
UNION ALL
SELECT 'agent:' || agent, sum(active), sum(pending)
FROM counted WHERE agent <> '' GROUP BY agent
UNION ALL
SELECT 'queue:' || queue, sum(active), sum(pending) FROM counted GROUP BY queue;

CREATE TABLE limit_rule (
    scope TEXT NOT NULL
        CHECK (scope IN ('global', 'portfolio', 'venture', 'stage', 'agent', 'queue')),
    name TEXT NOT NULL DEFAULT '',
    max_active INTEGER CHECK (max_active BETWEEN 0 AND 1000000000),
    max_pending INTEGER CHECK (max_pending BETWEEN 0 AND 1000000000),
    rate_count INTEGER CHECK (rate_count BETWEEN 1 AND 1000000000),
    rate_ms INTEGER CHECK (rate_ms BETWEEN 1 AND 86400000),
    updated_at INTEGER NOT NULL,
    updated_by TEXT NOT NULL,
    PRIMARY KEY (scope, name),
    CHECK ((rate_count IS NULL) = (rate_ms IS NULL)),
    CHECK (scope <> 'global' OR name = '')
) STRICT, WITHOUT ROWID;
INSERT INTO limit_rule (scope, max_active, max_pending, updated_at, updated_by) VALUES
    ('global', 200, 1000, CAST(unixepoch('subsec') * 1000 AS INTEGER), 'windlass'),
    ('venture', 10, 50, CAST(unixepoch('subsec') * 1000 AS INTEGER), 'windlass'),
    ('stage', 20, NULL, CAST(unixepoch('subsec') * 1000 AS INTEGER), 'windlass');

CREATE TABLE limit_rate (
    key TEXT PRIMARY KEY NOT NULL,
    began_at INTEGER NOT NULL,
    taken INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE pause (
    scope TEXT NOT NULL CHECK (scope IN ('global', 'venture', 'agent', 'queue')),
    name TEXT NOT NULL DEFAULT '',
    mode TEXT NOT NULL CHECK (mode IN ('pause', 'drain')),
    reason TEXT,
    since INTEGER NOT NULL,
    by TEXT NOT NULL,
    PRIMARY KEY (scope, name),
    CHECK ((scope = 'global') = (name = ''))
) STRICT, WITHOUT ROWID;

ALTER TABLE task_state ADD COLUMN lane INTEGER NOT NULL DEFAULT 0;

DROP TRIGGER task_state_update_history;
DROP TRIGGER task_spec_begins;

INSERT INTO lane (queue, profile, venture, portfolio, stage, agent, active, pending)
SELECT s.queue, s.profile, coalesce(s.venture, ''), coalesce(s.portfolio, ''),
       coalesce(s.stage, ''), coalesce(s.agent, ''),
       sum(t.status IN ('claimed', 'running')), sum(t.status IN ('pending', 'retry'))
FROM task_state t JOIN task_spec s ON s.id = t.id
WHERE t.finished_at IS NULL
GROUP BY 1, 2, 3, 4, 5, 6;
UPDATE task_state SET from_status = status, lane = (
    SELECT l.id FROM lane l JOIN task_spec s ON s.id = task_state.id
    WHERE l.queue = s.queue AND l.profile = s.profile AND l.venture = coalesce(s.venture, '')
      AND l.portfolio = coalesce(s.portfolio, '') AND l.stage = coalesce(s.stage, '')
      AND l.agent = coalesce(s.agent, ''))
WHERE finished_at IS NULL;

DROP INDEX task_state_ready;
CREATE INDEX task_state_ready ON task_state (lane, order_key, id) WHERE ready;

CREATE TRIGGER task_state_update_history AFTER UPDATE ON task_state
WHEN NEW.status <> OLD.status BEGIN
    SELECT RAISE(ABORT, 'windlass: task_state: from_status must say where the task stood')
    WHERE NEW.from_status IS NOT OLD.status;
    INSERT INTO task_history (task_id, change_id, from_status, to_status, event, actor, reason,
                              lease_id, metadata, at)
    VALUES (NEW.id, NEW.change_id, OLD.status, NEW.status, NEW.event, NEW.actor, NEW.reason,
            NEW.change_lease_id, NEW.metadata, NEW.updated_at);
    UPDATE lane SET
        active = active + (NEW.status IN ('claimed', 'running'))
            - (OLD.status IN ('claimed', 'running')),
        pending = pending + (NEW.status IN ('pending', 'retry'))
            - (OLD.status IN ('pending', 'retry'))
    WHERE id = NEW.lane;
    -- What it asked is answered or withdrawn with it.
    UPDATE approval SET decided_at = NEW.updated_at, status = CASE NEW.event
        WHEN 'approve' THEN 'approved' WHEN 'deny' THEN 'denied'
        WHEN 'expire_approval' THEN 'expired' ELSE 'withdrawn' END
    WHERE OLD.status = 'waiting_for_approval' AND task_id = NEW.id AND status = 'open';
END;
-- What was submitted begins its life at once. (PostgreSQL does it in the submitting statement.)
CREATE TRIGGER task_spec_begins AFTER INSERT ON task_spec BEGIN
    INSERT INTO lane (queue, profile, venture, portfolio, stage, agent, pending)
    VALUES (NEW.queue, NEW.profile, coalesce(NEW.venture, ''), coalesce(NEW.portfolio, ''),
            coalesce(NEW.stage, ''), coalesce(NEW.agent, ''), 1)
    ON CONFLICT (queue, profile, venture, portfolio, stage, agent)
    DO UPDATE SET pending = pending + 1;
    INSERT INTO task_state (id, profile, queue, change_id, actor, ready, order_key, run_at,
                            deadline_at, max_retries, created_at, entered_at, updated_at, lane)
    VALUES (NEW.id, NEW.profile, NEW.queue, NEW.id, NEW.submitted_by,
            NEW.run_at <= NEW.created_at AND NEW.profile <> 'ledger',
            -NEW.priority * 35184372088832 + min(NEW.run_at, 35184372088831), NEW.run_at,
            NEW.deadline_at, NEW.max_retries, NEW.created_at, NEW.created_at, NEW.created_at,
            (SELECT id FROM lane
             WHERE queue = NEW.queue AND profile = NEW.profile
               AND venture = coalesce(NEW.venture, '')
               AND portfolio = coalesce(NEW.portfolio, '')
               AND stage = coalesce(NEW.stage, '') AND agent = coalesce(NEW.agent, '')));
    INSERT INTO task_tag (key, value, created_at, task_id)
    SELECT t.key, t.value, NEW.created_at, NEW.id FROM json_each(NEW.tags) AS t
    WHERE NEW.tags IS NOT NULL;
END;
CREATE TRIGGER task_state_keeps_its_lane BEFORE UPDATE OF lane ON task_state
WHEN NEW.lane <> OLD.lane AND OLD.lane <> 0 BEGIN
    SELECT RAISE(ABORT, 'windlass: task_state: a task stays in its lane');
END;
CREATE TRIGGER lane_is_fixed BEFORE UPDATE OF id, queue, profile, venture, portfolio, stage, agent
ON lane BEGIN
    SELECT RAISE(ABORT, 'windlass: lane: tasks rely on what their lane is');
END;
CREATE TRIGGER lane_is_kept BEFORE DELETE ON lane BEGIN
    SELECT RAISE(ABORT, 'windlass: lane: tasks rely on it');
END;
