DROP VIEW limit_use;
DROP TRIGGER task_spec_begins;
DROP TRIGGER task_state_keeps_its_lane;
CREATE TABLE lane_before AS SELECT * FROM lane;
DROP TABLE lane;
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
INSERT INTO lane (id, queue, profile, venture, portfolio, stage, agent, active, pending)
SELECT min(id), queue, profile, venture, portfolio, stage, agent, sum(active), sum(pending)
FROM lane_before GROUP BY queue, profile, venture, portfolio, stage, agent;
UPDATE task_state SET lane = (
    SELECT l.id FROM lane l JOIN lane_before b
    USING (queue, profile, venture, portfolio, stage, agent)
    WHERE b.id = task_state.lane)
WHERE finished_at IS NULL AND profile = 'inference';
DROP TABLE lane_before;
CREATE INDEX lane_venture ON lane (venture) WHERE venture <> '';
CREATE INDEX lane_portfolio ON lane (portfolio) WHERE portfolio <> '';
CREATE INDEX lane_stage ON lane (stage) WHERE stage <> '';
CREATE INDEX lane_agent ON lane (agent) WHERE agent <> '';
CREATE TRIGGER lane_is_fixed BEFORE UPDATE OF id, queue, profile, venture, portfolio, stage, agent
ON lane BEGIN
    SELECT RAISE(ABORT, 'windlass: lane: tasks rely on what their lane is');
END;
CREATE TRIGGER lane_is_kept BEFORE DELETE ON lane BEGIN
    SELECT RAISE(ABORT, 'windlass: lane: tasks rely on it');
END;
CREATE TRIGGER task_state_keeps_its_lane BEFORE UPDATE OF lane ON task_state
WHEN NEW.lane <> OLD.lane AND OLD.lane <> 0 BEGIN
    SELECT RAISE(ABORT, 'windlass: task_state: a task stays in its lane');
END;

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

CREATE TRIGGER task_spec_begins AFTER INSERT ON task_spec BEGIN
    INSERT INTO lane (queue, profile, venture, portfolio, stage, agent,
                      pending)
    VALUES (NEW.queue, NEW.profile, coalesce(NEW.venture, ''), coalesce(NEW.portfolio, ''),
            coalesce(NEW.stage, ''), coalesce(NEW.agent, NEW.callee, ''), 1)
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
               AND stage = coalesce(NEW.stage, '')
               AND agent = coalesce(NEW.agent, NEW.callee, '')));
    INSERT INTO task_tag (key, value, created_at, task_id)
    SELECT t.key, t.value, NEW.created_at, NEW.id FROM json_each(NEW.tags) AS t
    WHERE NEW.tags IS NOT NULL;
END;
