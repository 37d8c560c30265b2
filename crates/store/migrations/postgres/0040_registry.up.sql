-- The registry: agents with their place in the company, ventures and portfolios.
--
-- Names are plain ids everywhere: tasks, history and messages name agents without referring to
-- these tables, so that whoever is archived or removed here takes nothing along.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

CREATE TABLE portfolio (
    name text COLLATE "C" PRIMARY KEY CHECK (octet_length(name) BETWEEN 1 AND 255),
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    archived_at timestamptz
);

CREATE TABLE venture (
    name text COLLATE "C" PRIMARY KEY CHECK (octet_length(name) BETWEEN 1 AND 255),
    portfolio text COLLATE "C" CHECK (octet_length(portfolio) BETWEEN 1 AND 255),
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    archived_at timestamptz
);

ALTER TABLE agent
    -- ceo, vp, crew, or whatever the company calls it.
    ADD COLUMN role text CHECK (octet_length(role) BETWEEN 1 AND 255),
    ADD COLUMN parent text COLLATE "C" CHECK (octet_length(parent) BETWEEN 1 AND 255),
    ADD COLUMN venture text COLLATE "C" CHECK (octet_length(venture) BETWEEN 1 AND 255),
    -- That of the venture counts, if it has one.
    ADD COLUMN portfolio text COLLATE "C" CHECK (octet_length(portfolio) BETWEEN 1 AND 255),
    ADD COLUMN queue text CHECK (octet_length(queue) BETWEEN 1 AND 255),
    ADD COLUMN worker_type text CHECK (octet_length(worker_type) BETWEEN 1 AND 100),
    -- {type: in_process, session, command or webhook, and its settings}
    ADD COLUMN executor jsonb CHECK (
        coalesce(executor ->> 'type', '') IN ('in_process', 'session', 'command', 'webhook')
        OR executor IS NULL),
    -- {agents: [names], ventures: [names]}: beyond the agent's own line.
    ADD COLUMN authority jsonb NOT NULL DEFAULT '{}' CHECK (
        CASE WHEN jsonb_typeof(authority) = 'object' THEN
            authority - ARRAY['agents', 'ventures'] = '{}'
            AND coalesce(jsonb_typeof(authority -> 'agents'), 'array') = 'array'
            AND coalesce(jsonb_typeof(authority -> 'ventures'), 'array') = 'array'
        ELSE FALSE END),
    ADD COLUMN archived_at timestamptz;

CREATE INDEX agent_parent ON agent (parent) WHERE parent IS NOT NULL;

-- One change of the tree after the other: two that are harmless alone can make a circle together.
CREATE FUNCTION windlass_lock_agents() RETURNS void LANGUAGE sql
SET search_path FROM CURRENT AS $$
    SELECT pg_advisory_xact_lock(hashtextextended('windlass agents ' || current_schema(), 0))
$$;

CREATE FUNCTION windlass_refuse_circle() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM windlass_lock_agents();
    IF EXISTS (
        WITH RECURSIVE line (name) AS (
            SELECT NEW.parent
            UNION
            SELECT a.parent FROM line JOIN agent a ON a.name = line.name
            WHERE a.parent IS NOT NULL)
        SELECT 1 FROM line WHERE name = NEW.name)
    THEN
        RAISE EXCEPTION 'windlass: agent % must not be above itself', NEW.name
            USING ERRCODE = 'check_violation';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER agent_is_not_above_itself AFTER INSERT OR UPDATE OF parent ON agent FOR EACH ROW
    WHEN (NEW.parent IS NOT NULL) EXECUTE FUNCTION windlass_refuse_circle();

-- Gives a task the place of the agent that it names, as agent::take_over of the domain does; a
-- test compares the two. Where the queue comes from the registry, it stands in the options.
CREATE FUNCTION windlass_with_agent(kind text, options jsonb) RETURNS jsonb LANGUAGE sql STABLE
SET search_path FROM CURRENT AS $$
    SELECT options || coalesce((
        SELECT jsonb_strip_nulls(jsonb_build_object(
            'venture', coalesce(options ->> 'venture', a.venture),
            -- The portfolio of one venture says nothing about another.
            'portfolio', CASE WHEN coalesce(options ->> 'venture' <> coalesce(a.venture, ''), FALSE)
                THEN options ->> 'portfolio'
                ELSE coalesce(options ->> 'portfolio', v.portfolio, a.portfolio) END))
        FROM agent a LEFT JOIN venture v ON v.name = a.venture
        WHERE a.name = coalesce(options ->> 'agent', options ->> 'callee')), '{}')
    || coalesce((
        SELECT jsonb_strip_nulls(jsonb_build_object('queue', CASE kind
            WHEN 'job' THEN coalesce(a.queue, a.role) WHEN 'delegation' THEN a.queue END))
        FROM agent a
        WHERE a.name = options ->> CASE kind WHEN 'job' THEN 'agent' ELSE 'callee' END), '{}')
$$;

CREATE OR REPLACE FUNCTION windlass_submit(queue text, payload jsonb, options jsonb DEFAULT '{}')
RETURNS uuid LANGUAGE plpgsql SECURITY DEFINER
SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    now_ms timestamptz := date_trunc('milliseconds', clock_timestamp());
    kind text;
    told jsonb;
    wanted task_spec%ROWTYPE;
    found task_spec%ROWTYPE;
    problem text;
    limited boolean;
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
    IF options #> '{backoff,on_exhausted}' = 'null' THEN
        options := options #- '{backoff,on_exhausted}';
    END IF;
    kind := coalesce(options ->> 'kind', CASE WHEN options ? 'pool' THEN 'inference'
        WHEN options ? 'callee' THEN 'delegation' ELSE 'job' END);
    problem := coalesce(windlass_options_problem(kind, options),
                        windlass_backoff_problem(options -> 'backoff'));
    IF problem IS NOT NULL THEN
        RAISE EXCEPTION 'windlass: %', problem;
    END IF;
    told := options;
    options := windlass_with_agent(kind, windlass_with_policy(options));
    SELECT p.profile, p.max_retries, now_ms + p.deadline_ms * interval '1 ms'
    INTO wanted.profile, wanted.max_retries, wanted.deadline_at
    FROM profile p
    WHERE p.profile::text = CASE WHEN options ->> 'mode' = 'ledger' THEN 'ledger' ELSE kind END;
    -- A UUIDv7: 48 bits of milliseconds, then what gen_random_uuid gives.
    wanted.id := coalesce((options ->> 'id')::uuid, (
        lpad(to_hex((extract(epoch FROM now_ms) * 1000)::bigint), 12, '0') || '7'
        || substr(replace(gen_random_uuid()::text, '-', ''), 14))::uuid);
    wanted.name := options ->> 'name';
    wanted.queue := coalesce(windlass_submit.queue, options ->> 'queue', options ->> CASE kind
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
        -- What was left to the agent is as it was then: the policy may have changed since.
        IF told ? 'agent' THEN
            wanted.max_retries := coalesce((told ->> 'max_retries')::int, found.max_retries);
            wanted.backoff := windlass_left_to_agent(told -> 'backoff', wanted.backoff,
                                                     found.backoff);
            wanted.venture := coalesce(told ->> 'venture', found.venture);
            wanted.portfolio := coalesce(told ->> 'portfolio', found.portfolio);
            wanted.queue := coalesce(windlass_submit.queue, found.queue);
        END IF;
        IF found.id IS NULL THEN
            RAISE EXCEPTION 'windlass: a task with this id or key has just been submitted'
                USING ERRCODE = 'serialization_failure', HINT = 'Try again.';
        ELSIF kind <> 'delegation' AND NOT windlass_same_request(wanted, found) THEN
            RAISE EXCEPTION
                'windlass: the id or idempotency key was used before with another request';
        END IF;
        RETURN found.id;
    END IF;
    limited := windlass_admit(found.id, FALSE);
    INSERT INTO task_state (id, profile, queue, change_id, actor, ready, order_key, run_at,
        deadline_at, max_retries, created_at, entered_at, updated_at)
    VALUES (found.id, found.profile, found.queue, found.id, found.submitted_by,
        found.run_at <= now_ms AND found.profile <> 'ledger',
        windlass_order_key(found.priority, found.run_at), found.run_at, found.deadline_at,
        found.max_retries, now_ms, now_ms, now_ms);
    IF limited THEN
        INSERT INTO sql_submit (task_id) VALUES (found.id);
    END IF;
    PERFORM pg_notify('windlass_ready', found.queue);
    RETURN found.id;
END $$;
