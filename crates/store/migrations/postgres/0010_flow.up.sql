-- Flow control: lanes, what they hold, and the rules that bind them.
--
-- A lane is all tasks that are alike for every rule: one queue and profile, one venture, portfolio,
-- stage and agent. Claims look for ready tasks lane by lane, so what one rule holds back is passed
-- over in one step.
--
-- Invariant: limit_count, summed up over its backends, is what task_state holds. Each backend adds
-- to rows of its own, so nobody who finishes waits for anybody who counts.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

CREATE TABLE lane (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue text NOT NULL,
    profile task_profile NOT NULL,
    -- Empty where the task names none.
    venture text NOT NULL,
    portfolio text NOT NULL,
    stage text NOT NULL,
    agent text NOT NULL,
    -- What its tasks count for, as domain::limit::Key writes it. A ledger is a record of work
    -- that others do: it counts for nothing.
    keys text[] NOT NULL GENERATED ALWAYS AS (
        CASE WHEN profile = 'ledger' THEN '{}'::text[] ELSE array_remove(ARRAY[
            'global:',
            CASE WHEN portfolio <> '' THEN 'portfolio:' || portfolio END,
            CASE WHEN venture <> '' THEN 'venture:' || venture END,
            CASE WHEN stage <> '' THEN 'stage:' || stage END,
            CASE WHEN agent <> '' THEN 'agent:' || agent END,
            'queue:' || queue], NULL) END) STORED
);
-- Not unique: whoever makes a lane must not wait for another who does, and may keep it open. Two
-- lanes of the same names hurt nobody.
CREATE INDEX lane_names ON lane (queue, profile, venture, portfolio, stage, agent);

CREATE TABLE limit_count (
    key text NOT NULL,
    -- 0 is what was added up from backends that are gone.
    backend int NOT NULL,
    active bigint NOT NULL,
    pending bigint NOT NULL,
    PRIMARY KEY (key, backend)
) WITH (fillfactor = 50);

-- What is held of each key.
CREATE VIEW limit_use AS
SELECT key, sum(active)::bigint AS active, sum(pending)::bigint AS pending
FROM limit_count GROUP BY key;

CREATE TABLE limit_rule (
    scope text NOT NULL
        CHECK (scope IN ('global', 'portfolio', 'venture', 'stage', 'agent', 'queue')),
    -- Empty: for each one of the scope that has no rule of its own.
    name text NOT NULL DEFAULT '',
    max_active bigint CHECK (max_active BETWEEN 0 AND 1000000000),
    max_pending bigint CHECK (max_pending BETWEEN 0 AND 1000000000),
    rate_count bigint CHECK (rate_count BETWEEN 1 AND 1000000000),
    rate_ms bigint CHECK (rate_ms BETWEEN 1 AND 86400000),
    updated_at timestamptz NOT NULL,
    updated_by text NOT NULL,
    PRIMARY KEY (scope, name),
    CHECK ((rate_count IS NULL) = (rate_ms IS NULL)),
    CHECK (scope <> 'global' OR name = '')
);
INSERT INTO limit_rule (scope, max_active, max_pending, updated_at, updated_by) VALUES
    ('global', 200, 1000, date_trunc('milliseconds', clock_timestamp()), 'windlass'),
    ('venture', 10, 50, date_trunc('milliseconds', clock_timestamp()), 'windlass'),
    ('stage', 20, NULL, date_trunc('milliseconds', clock_timestamp()), 'windlass');

-- How many tasks of a key with a rate were claimed in the period that began then. Only claims
-- write here, under their lock.
CREATE TABLE limit_rate (
    key text PRIMARY KEY,
    began_at timestamptz NOT NULL,
    taken bigint NOT NULL
);

-- What people have stopped: 'pause' hands nothing out, 'drain' takes nothing in.
CREATE TABLE pause (
    scope text NOT NULL CHECK (scope IN ('global', 'venture', 'agent', 'queue')),
    name text NOT NULL DEFAULT '',
    mode text NOT NULL CHECK (mode IN ('pause', 'drain')),
    reason text,
    since timestamptz NOT NULL,
    by text NOT NULL,
    PRIMARY KEY (scope, name),
    CHECK ((scope = 'global') = (name = ''))
);

ALTER TABLE task_state ADD COLUMN lane bigint NOT NULL DEFAULT 0;

-- What lives already gets its lane; no rule of the machine is touched, so its triggers rest.
INSERT INTO lane (queue, profile, venture, portfolio, stage, agent)
SELECT DISTINCT s.queue, s.profile, coalesce(s.venture, ''), coalesce(s.portfolio, ''),
       coalesce(s.stage, ''), coalesce(s.agent, '')
FROM task_spec s JOIN task_state t ON t.id = s.id
WHERE t.finished_at IS NULL;
ALTER TABLE task_state DISABLE TRIGGER USER;
UPDATE task_state t SET lane = l.id
FROM task_spec s, lane l
WHERE s.id = t.id AND t.finished_at IS NULL
  AND (l.queue, l.profile, l.venture, l.portfolio, l.stage, l.agent)
    = (s.queue, s.profile, coalesce(s.venture, ''), coalesce(s.portfolio, ''),
       coalesce(s.stage, ''), coalesce(s.agent, ''));
ALTER TABLE task_state ENABLE TRIGGER USER;
INSERT INTO limit_count (key, backend, active, pending)
SELECT k, 0, count(*) FILTER (WHERE t.status IN ('claimed', 'running')),
       count(*) FILTER (WHERE t.status IN ('pending', 'retry'))
FROM task_state t JOIN lane l ON l.id = t.lane, unnest(l.keys) AS k
WHERE t.finished_at IS NULL
GROUP BY k;

-- A claim reads this index alone. Nothing but ready tasks is in it.
DROP INDEX task_state_ready;
CREATE INDEX task_state_ready ON task_state (lane, order_key, id) WHERE ready;

-- Whoever submits by SQL need not know of lanes.
CREATE FUNCTION windlass_find_lane() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
DECLARE
    wanted task_spec%ROWTYPE;
    found bigint;
BEGIN
    SELECT * INTO wanted FROM task_spec s WHERE s.id = NEW.id;
    SELECT min(l.id) INTO found FROM lane l
    WHERE (l.queue, l.profile, l.venture, l.portfolio, l.stage, l.agent)
        = (NEW.queue, NEW.profile, coalesce(wanted.venture, ''), coalesce(wanted.portfolio, ''),
           coalesce(wanted.stage, ''), coalesce(wanted.agent, ''));
    IF found IS NULL THEN
        INSERT INTO lane (queue, profile, venture, portfolio, stage, agent)
        VALUES (NEW.queue, NEW.profile, coalesce(wanted.venture, ''),
                coalesce(wanted.portfolio, ''), coalesce(wanted.stage, ''),
                coalesce(wanted.agent, ''))
        RETURNING id INTO found;
    END IF;
    NEW.lane := found;
    RETURN NEW;
END $$;
CREATE TRIGGER task_state_finds_its_lane BEFORE INSERT ON task_state FOR EACH ROW
    WHEN (NEW.lane = 0) EXECUTE FUNCTION windlass_find_lane();
CREATE TRIGGER task_state_keeps_its_lane BEFORE UPDATE OF lane ON task_state FOR EACH ROW
    WHEN (NEW.lane <> OLD.lane) EXECUTE FUNCTION windlass_refuse('a task stays in its lane');
CREATE TRIGGER lane_is_fixed BEFORE UPDATE OR DELETE OR TRUNCATE ON lane
    EXECUTE FUNCTION windlass_refuse('tasks rely on what their lane is');

CREATE FUNCTION windlass_refuse_lane(lane bigint) RETURNS text[] LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    RAISE EXCEPTION 'windlass: there is no lane %', lane
        USING ERRCODE = 'foreign_key_violation';
END $$;

-- Once a statement, from the new rows alone: they say where each task stood. Sorted, although no
-- two backends meet in a row: a dump restored without backends has only row 0.
CREATE FUNCTION windlass_count_tasks() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO limit_count AS c (key, backend, active, pending)
    SELECT k, pg_backend_pid(), sum(d.active), sum(d.pending)
    FROM (
        SELECT lane,
            sum((status IN ('claimed', 'running'))::int
                - (moved AND from_status IN ('claimed', 'running'))::int) AS active,
            sum((status IN ('pending', 'retry'))::int
                - (moved AND from_status IN ('pending', 'retry'))::int) AS pending
        FROM (SELECT lane, status, from_status, TG_OP = 'UPDATE' AS moved FROM changed
              WHERE from_status IS DISTINCT FROM status OR TG_OP = 'INSERT') c
        GROUP BY lane
    ) d
    LEFT JOIN lane l ON l.id = d.lane,
        unnest(coalesce(l.keys, windlass_refuse_lane(d.lane))) AS k
    WHERE d.active <> 0 OR d.pending <> 0
    GROUP BY k
    HAVING sum(d.active) <> 0 OR sum(d.pending) <> 0
    ORDER BY k
    ON CONFLICT (key, backend) DO UPDATE
    SET active = c.active + excluded.active, pending = c.pending + excluded.pending;
    RETURN NULL;
END $$;
CREATE TRIGGER task_state_insert_count AFTER INSERT ON task_state
    REFERENCING NEW TABLE AS changed FOR EACH STATEMENT
    EXECUTE FUNCTION windlass_count_tasks();
CREATE TRIGGER task_state_update_count AFTER UPDATE ON task_state
    REFERENCING NEW TABLE AS changed FOR EACH STATEMENT
    EXECUTE FUNCTION windlass_count_tasks();

-- A claim or a submit that limits bind: first the lock, then, in a statement of its own and so with
-- a view of all that came before, what is held. 1 is the lock of submits, 2 that of claims, 3 both,
-- in this order.
CREATE FUNCTION windlass_hold(lock int, keys text[])
RETURNS TABLE (key text, active bigint, pending bigint, began_at timestamptz, taken bigint)
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT AS $$
#variable_conflict use_column
BEGIN
    IF lock & 1 <> 0 THEN
        PERFORM pg_advisory_xact_lock(hashtext('windlass ' || current_schema()), 1);
    END IF;
    IF lock & 2 <> 0 THEN
        PERFORM pg_advisory_xact_lock(hashtext('windlass ' || current_schema()), 2);
    END IF;
    RETURN QUERY
    SELECT k, coalesce(h.active, 0)::bigint, coalesce(h.pending, 0)::bigint, r.began_at, r.taken
    FROM unnest(keys) AS k
    LEFT JOIN LATERAL (
        SELECT sum(c.active) AS active, sum(c.pending) AS pending
        FROM limit_count c WHERE c.key = k) h ON TRUE
    LEFT JOIN limit_rate r ON r.key = k;
END $$;
