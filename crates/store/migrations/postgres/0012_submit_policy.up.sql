-- Submitting by SQL takes over what the API takes over: `backoff.on_exhausted`, and the policy of
-- the agent that a task names.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

CREATE OR REPLACE FUNCTION windlass_backoff_problem(backoff jsonb) RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE
SET search_path FROM CURRENT AS $$
    SELECT CASE
        WHEN jsonb_typeof(backoff) <> 'object'
            THEN 'backoff must be an object of base_ms, max_ms, multiplier, jitter, retryable, '
                'non_retryable and on_exhausted'
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
                WHEN b.key = 'on_exhausted' THEN
                    CASE WHEN b.value NOT IN ('"poisoned"', '"failed"')
                        THEN 'must be poisoned or failed' END
                ELSE 'is unknown; it may have base_ms, max_ms, multiplier, jitter, retryable, '
                    'non_retryable and on_exhausted' END) AS problem (found)
            WHERE found IS NOT NULL
            ORDER BY b.key LIMIT 1),
            CASE WHEN coalesce((backoff ->> 'max_ms')::numeric, 300000)
                    < coalesce((backoff ->> 'base_ms')::numeric, 1000)
                THEN 'backoff: max_ms must not be less than base_ms' END)
        END
$$;

-- A policy says it beside its backoff, not in it, as before.
ALTER TABLE agent ADD CONSTRAINT end_stands_beside_backoff
    CHECK (NOT coalesce(retry_policy -> 'backoff' ? 'on_exhausted', FALSE));

-- Gives a task what its options left out, as RetryPolicy::fill of the domain does; a test compares
-- the two.
CREATE FUNCTION windlass_with_policy(options jsonb) RETURNS jsonb LANGUAGE sql STABLE
SET search_path FROM CURRENT AS $$
    SELECT coalesce((
        SELECT options
            || CASE WHEN p ? 'max_retries' AND NOT options ? 'max_retries'
                THEN jsonb_build_object('max_retries', p -> 'max_retries') ELSE '{}' END
            || CASE WHEN NOT (p ? 'backoff' OR p ? 'on_exhausted') THEN '{}'
                ELSE jsonb_build_object('backoff',
                    jsonb_strip_nulls(jsonb_build_object('on_exhausted', p -> 'on_exhausted'))
                    || coalesce(options -> 'backoff', p -> 'backoff', '{}')) END
        FROM (SELECT retry_policy FROM agent WHERE name = options ->> 'agent') AS a (p)), options)
$$;

-- A backoff as it is compared with that of an earlier submit: what was told now counts, and what
-- was left to the agent is as it was.
CREATE FUNCTION windlass_left_to_agent(told jsonb, wanted jsonb, earlier jsonb) RETURNS jsonb
LANGUAGE sql STABLE PARALLEL SAFE
SET search_path FROM CURRENT AS $$
    SELECT CASE WHEN told IS NULL THEN earlier
        WHEN told ? 'on_exhausted' THEN wanted
        ELSE wanted - 'on_exhausted' || jsonb_strip_nulls(
            jsonb_build_object('on_exhausted', earlier -> 'on_exhausted')) END
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
    options := windlass_with_policy(options);
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
        -- What was left to the agent is as it was then: the policy may have changed since.
        IF told ? 'agent' THEN
            wanted.max_retries := coalesce((told ->> 'max_retries')::int, found.max_retries);
            wanted.backoff := windlass_left_to_agent(told -> 'backoff', wanted.backoff,
                                                     found.backoff);
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
    INSERT INTO task_state (id, profile, queue, change_id, actor, ready, order_key, run_at,
        deadline_at, max_retries, created_at, entered_at, updated_at)
    VALUES (found.id, found.profile, found.queue, found.id, found.submitted_by,
        found.run_at <= now_ms AND found.profile <> 'ledger',
        windlass_order_key(found.priority, found.run_at), found.run_at, found.deadline_at,
        found.max_retries, now_ms, now_ms, now_ms);
    PERFORM pg_notify('windlass_ready', found.queue);
    RETURN found.id;
END $$;
