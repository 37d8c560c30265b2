-- An agent that was written by hand can be read: one that nobody understands would spoil every list
-- that it is on, and every send and submit that asks for it. The checks of the table itself look at
-- the outermost names only.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- What is wrong with a list of names; NULL if nothing is.
CREATE FUNCTION windlass_name_list_problem(list jsonb) RETURNS text
LANGUAGE sql IMMUTABLE
SET search_path FROM CURRENT AS $$
    SELECT CASE
        WHEN list IS NULL THEN NULL
        WHEN jsonb_typeof(list) <> 'array' THEN 'must be an array of names'
        WHEN jsonb_array_length(list) > 1000 THEN 'may have at most 1000 names'
        WHEN jsonb_path_exists(list, 'strict $[*] ? (@.type() <> "string")')
            THEN 'must be an array of names'
        ELSE (
            SELECT coalesce('holds a name that ' || windlass_name_problem(n.name),
                            'holds a name of more than 255 bytes')
            FROM jsonb_array_elements_text(list) AS n (name)
            WHERE windlass_name_problem(n.name) IS NOT NULL OR octet_length(n.name) > 255
            LIMIT 1) END
$$;

-- What is wrong with an executor; NULL if nothing is.
CREATE FUNCTION windlass_executor_problem(executor jsonb) RETURNS text
LANGUAGE sql IMMUTABLE
SET search_path FROM CURRENT AS $$
    SELECT CASE
        WHEN executor IS NULL THEN NULL
        WHEN jsonb_typeof(executor) <> 'object' THEN 'must be an object'
        WHEN jsonb_typeof(executor -> 'type') IS DISTINCT FROM 'string'
                OR executor ->> 'type' NOT IN ('in_process', 'session', 'command', 'webhook')
            THEN 'must have the type in_process, session, command or webhook'
        WHEN executor ->> 'type' = 'command' AND NOT executor ? 'command'
            THEN 'must name a command'
        WHEN executor ->> 'type' = 'webhook' AND NOT executor ? 'url' THEN 'must name a url'
        ELSE (
            SELECT e.key || ' ' || found
            FROM jsonb_each(executor) AS e, LATERAL (SELECT CASE
                WHEN e.key = 'type' THEN NULL
                WHEN e.key = 'command' AND executor ->> 'type' = 'command' THEN CASE
                    WHEN jsonb_typeof(e.value) <> 'array' THEN 'must be an array of words'
                    WHEN jsonb_array_length(e.value) NOT BETWEEN 1 AND 100
                        THEN 'must have from 1 to 100 words'
                    WHEN jsonb_path_exists(e.value, 'strict $[*] ? (@.type() <> "string")')
                        THEN 'must be an array of words'
                    WHEN e.value ->> 0 = '' THEN 'must name a program'
                    WHEN EXISTS (SELECT 1 FROM jsonb_array_elements_text(e.value) AS w (word)
                                 WHERE octet_length(w.word) > 4096)
                        THEN 'holds a word of more than 4096 bytes' END
                WHEN e.key = 'url' AND executor ->> 'type' = 'webhook' THEN CASE
                    WHEN jsonb_typeof(e.value) <> 'string' THEN 'must be a string'
                    WHEN octet_length(e.value #>> '{}') > 4096 THEN 'takes more than 4096 bytes'
                    WHEN e.value #>> '{}' !~ '^https?://'
                        THEN 'must begin with http:// or https://'
                    ELSE windlass_name_problem(e.value #>> '{}') END
                WHEN e.key = 'timeout_ms' AND executor ->> 'type' IN ('command', 'webhook') THEN
                    CASE WHEN e.value <> 'null' AND (
                        jsonb_typeof(e.value) <> 'number' OR e.value::text !~ '^\d{1,12}$'
                        OR e.value::text::numeric NOT BETWEEN 1 AND 315360000000)
                    THEN 'must be an integer from 1 to 315360000000' END
                ELSE 'is unknown' END) AS problem (found)
            WHERE found IS NOT NULL
            ORDER BY e.key LIMIT 1) END
$$;

-- What is wrong with an agent; NULL if nothing is. The table's own checks have the rest of its
-- retry policy.
CREATE FUNCTION windlass_agent_problem(kept agent) RETURNS text
LANGUAGE sql STABLE
SET search_path FROM CURRENT AS $$
    SELECT coalesce(
        (SELECT n.field || ' ' || windlass_name_problem(n.name)
         FROM (VALUES ('name', kept.name), ('role', kept.role), ('parent', kept.parent),
                   ('venture', kept.venture), ('portfolio', kept.portfolio), ('queue', kept.queue),
                   ('worker_type', kept.worker_type)) AS n (field, name)
         WHERE windlass_name_problem(n.name) IS NOT NULL LIMIT 1),
        CASE WHEN kept.created_at NOT BETWEEN '1970-01-01Z' AND '9999-12-31Z'
                OR kept.updated_at NOT BETWEEN '1970-01-01Z' AND '9999-12-31Z'
                OR kept.archived_at NOT BETWEEN '1970-01-01Z' AND '9999-12-31Z'
            THEN 'a time must be from the year 1970 to 9999' END,
        'authority: agents ' || windlass_name_list_problem(kept.authority -> 'agents'),
        'authority: ventures ' || windlass_name_list_problem(kept.authority -> 'ventures'),
        'executor ' || windlass_executor_problem(kept.executor))
$$;

-- One that could not be read before may be archived; whoever changes it otherwise mends it.
CREATE FUNCTION windlass_check_agent() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
DECLARE
    problem text := windlass_agent_problem(NEW);
BEGIN
    IF problem IS NOT NULL AND TG_OP = 'UPDATE' AND windlass_agent_problem(OLD) = problem THEN
        RETURN NEW;
    ELSIF problem IS NOT NULL THEN
        RAISE EXCEPTION 'windlass: agent: %', problem USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER agent_can_be_read BEFORE INSERT OR UPDATE ON agent FOR EACH ROW
    EXECUTE FUNCTION windlass_check_agent();

-- A message that a handler waits for, and that nothing lies before, begins in that handler's hands:
-- one version of its row, not two. Only a send does so, which leaves its digest.
CREATE OR REPLACE FUNCTION windlass_begin_message() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    IF NEW.status = 'dead_lettered' THEN
        IF NOT EXISTS (SELECT 1 FROM dead_letter WHERE message_id = NEW.id) THEN
            RAISE EXCEPTION 'windlass: message % has no dead letter', NEW.id
                USING HINT = 'A message begins pending.';
        END IF;
    ELSIF NOT (NEW.status = 'pending' AND NEW.deliveries = 0
               OR NEW.status = 'delivered' AND NEW.deliveries = 1 AND NEW.request_digest <> '')
    THEN
        RAISE EXCEPTION 'windlass: a message begins pending, and nobody has had it';
    ELSE
        INSERT INTO inbox (agent, opened_at) VALUES (NEW.to_agent, NEW.created_at)
        ON CONFLICT (agent) DO NOTHING;
    END IF;
    RETURN NEW;
END $$;

-- Which registry of agents it is: every change makes another one, by hand too. Whoever has asked
-- who may write to whom need not ask again while it is the same.
CREATE TABLE registry (
    version bigint NOT NULL,
    one boolean PRIMARY KEY DEFAULT TRUE CHECK (one)
) WITH (fillfactor = 50);
INSERT INTO registry (version) VALUES (1);

CREATE FUNCTION windlass_renew_registry() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE registry SET version = version + 1;
    RETURN NULL;
END $$;
CREATE TRIGGER agent_renews_the_registry AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON agent
    EXECUTE FUNCTION windlass_renew_registry();
