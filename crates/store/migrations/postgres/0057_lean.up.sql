-- What a small batch costs beside its own rows is mostly the setting up of queries inside triggers.
-- Four things that every hot statement paid for and hardly ever needed:
--
-- * A setting of a function is put in force and taken back at each call, and plans are looked at
--   again each time. The functions of the hot path name the schema of what they use instead: below,
--   `here.` stands for it.
-- * The counts of limits were an INSERT that groups by lane and by key. Where all rows are of one
--   lane, which is the rule, and its counts exist, a plain UPDATE by key does.
-- * A task that begins as pending paid for those that begin in a worker's hands.
-- * The guard of updates looked at columns that hardly any statement sets: it is asked about those
--   only when they are set.
-- What is new costs a little: a task is in the lane of its own names. A hand-written insert could
-- name another one, and was counted and handed out as that one's.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

DO $migration$
BEGIN
EXECUTE replace(replace($functions$

CREATE OR REPLACE FUNCTION here.windlass_record_beginning() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    mine bigint := here.windlass_xid();
    one_lane boolean;
    begins_held boolean;
    more_active bigint;
    more_pending bigint;
    keys text[];
    counted bigint;
BEGIN
    SELECT d.first_lane = d.last_lane, d.held, d.active, d.pending,
           coalesce(l.keys, here.windlass_refuse_lane(d.first_lane))
    INTO one_lane, begins_held, more_active, more_pending, keys
    FROM (
        SELECT min(c.lane) AS first_lane, max(c.lane) AS last_lane,
            bool_or(c.from_status IS NOT NULL) AS held,
            count(*) FILTER (WHERE c.status IN ('claimed', 'running')) AS active,
            count(*) FILTER (WHERE c.status IN ('pending', 'retry')) AS pending
        FROM changed c
        HAVING count(*) > 0
    ) d
    LEFT JOIN here.lane l ON l.id = d.first_lane;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    -- A task that begins in a worker's hands was submitted before that.
    IF begins_held THEN
        INSERT INTO here.task_history (xid, task_id, change_id, from_status, to_status, event,
                                       actor, reason, lease_id, metadata, at)
        SELECT mine, c.id, c.id, NULL,
               CASE WHEN t.event IS NOT NULL AND here.windlass_is_claimed_at_submit(c)
                   THEN c.from_status ELSE here.windlass_refuse_held(c) END,
               'submit', coalesce(s.submitted_by, here.windlass_refuse_beginning(c)::text),
               NULL, NULL, NULL, c.created_at
        FROM changed c
        LEFT JOIN here.task_spec s ON s.id = c.id
        LEFT JOIN here.transition t ON t.profile = c.profile AND t.from_status = c.from_status
            AND t.event = c.event AND t.to_status = c.status
        WHERE c.from_status IS NOT NULL;
    END IF;
    INSERT INTO here.task_history (xid, task_id, change_id, from_status, to_status, event, actor,
                                   reason, lease_id, metadata, at)
    SELECT mine, coalesce((
               SELECT CASE WHEN here.windlass_broken_spec_rule(s) IS NULL THEN s.id
                   ELSE here.windlass_refuse_spec(s) END
               FROM here.task_spec s
               JOIN here.lane l ON l.id = c.lane
               WHERE s.id = c.id AND s.profile = c.profile AND s.queue = c.queue
                 AND l.queue = s.queue AND l.profile = s.profile
                 AND l.venture = coalesce(s.venture, '')
                 AND l.portfolio = coalesce(s.portfolio, '')
                 AND l.stage = coalesce(s.stage, '')
                 AND l.agent = coalesce(s.agent, s.callee, '')
                 AND l.llm = coalesce(s.llm, '') AND l.model = coalesce(s.model, '')
                 AND l.tier = coalesce(s.tier, '')
                 AND s.run_at = c.run_at AND s.max_retries = c.max_retries
                 AND s.created_at = c.created_at), here.windlass_refuse_beginning(c)),
           c.change_id, c.from_status, c.status, c.event, c.actor, c.reason, c.change_lease_id,
           c.metadata, c.updated_at
    FROM changed c
    WHERE CASE WHEN here.windlass_broken_state_rule(c) IS NULL THEN TRUE
        ELSE here.windlass_refuse_state(c) END;
    -- No other backend writes these rows.
    IF one_lane THEN
        UPDATE here.limit_count n
        SET active = n.active + more_active, pending = n.pending + more_pending
        WHERE n.key = ANY (keys) AND n.backend = pg_backend_pid();
        GET DIAGNOSTICS counted = ROW_COUNT;
        -- A key that this backend counts for the first time.
        IF counted < cardinality(keys) THEN
            INSERT INTO here.limit_count AS n (key, backend, active, pending)
            SELECT k, pg_backend_pid(), more_active, more_pending
            FROM unnest(keys) AS k
            WHERE NOT EXISTS (
                SELECT 1 FROM here.limit_count c
                WHERE c.key = k AND c.backend = pg_backend_pid())
            ON CONFLICT (key, backend) DO UPDATE
            SET active = n.active + excluded.active, pending = n.pending + excluded.pending;
        END IF;
        RETURN NULL;
    END IF;
    INSERT INTO here.limit_count AS n (key, backend, active, pending)
    SELECT k, pg_backend_pid(), sum(d.active), sum(d.pending)
    FROM (
        SELECT c.lane, count(*) FILTER (WHERE c.status IN ('claimed', 'running')) AS active,
            count(*) FILTER (WHERE c.status IN ('pending', 'retry')) AS pending
        FROM changed c
        GROUP BY c.lane
    ) d
    LEFT JOIN here.lane l ON l.id = d.lane,
        unnest(coalesce(l.keys, here.windlass_refuse_lane(d.lane))) AS k
    GROUP BY k
    ORDER BY k
    ON CONFLICT (key, backend) DO UPDATE
    SET active = n.active + excluded.active, pending = n.pending + excluded.pending;
    RETURN NULL;
END $$;
ALTER FUNCTION here.windlass_record_beginning() RESET ALL;

CREATE OR REPLACE FUNCTION here.windlass_record_change() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    mine bigint := here.windlass_xid();
    -- A made-up number must not put the task's changes out of sight.
    highest bigint := greatest(mine, here.windlass_next_xid() - 1);
    one_lane boolean;
    more_active bigint;
    more_pending bigint;
    keys text[];
    counted bigint;
BEGIN
    INSERT INTO here.task_history (xid, task_id, change_id, from_status, to_status, event, actor,
                                   reason, lease_id, metadata, at)
    SELECT least(greatest(c.xid, mine), highest), c.id, c.change_id, c.from_status, c.status,
           coalesce(t.event, here.windlass_refuse_transition(c)), c.actor, c.reason,
           c.change_lease_id, c.metadata, c.updated_at
    FROM changed c
    LEFT JOIN here.transition t ON t.profile = c.profile AND t.from_status = c.from_status
        AND t.event = c.event AND t.to_status = c.status
    WHERE CASE WHEN here.windlass_broken_state_rule(c) IS NULL THEN c.from_status <> c.status
        ELSE here.windlass_refuse_state(c) END;
    -- A heartbeat moves nothing from one count to another.
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    SELECT d.first_lane = d.last_lane, d.active, d.pending,
           coalesce(l.keys, here.windlass_refuse_lane(d.first_lane))
    INTO one_lane, more_active, more_pending, keys
    FROM (
        SELECT min(c.lane) AS first_lane, max(c.lane) AS last_lane,
            count(*) FILTER (WHERE c.status IN ('claimed', 'running'))
                - count(*) FILTER (WHERE c.from_status IN ('claimed', 'running')) AS active,
            count(*) FILTER (WHERE c.status IN ('pending', 'retry'))
                - count(*) FILTER (WHERE c.from_status IN ('pending', 'retry')) AS pending
        FROM changed c
        WHERE c.from_status <> c.status
    ) d
    LEFT JOIN here.lane l ON l.id = d.first_lane;
    IF one_lane AND more_active = 0 AND more_pending = 0 THEN
        RETURN NULL;
    END IF;
    -- No other backend writes these rows.
    IF one_lane THEN
        UPDATE here.limit_count n
        SET active = n.active + more_active, pending = n.pending + more_pending
        WHERE n.key = ANY (keys) AND n.backend = pg_backend_pid();
        GET DIAGNOSTICS counted = ROW_COUNT;
        -- A key that this backend counts for the first time.
        IF counted < cardinality(keys) THEN
            INSERT INTO here.limit_count AS n (key, backend, active, pending)
            SELECT k, pg_backend_pid(), more_active, more_pending
            FROM unnest(keys) AS k
            WHERE NOT EXISTS (
                SELECT 1 FROM here.limit_count c
                WHERE c.key = k AND c.backend = pg_backend_pid())
            ON CONFLICT (key, backend) DO UPDATE
            SET active = n.active + excluded.active, pending = n.pending + excluded.pending;
        END IF;
        RETURN NULL;
    END IF;
    INSERT INTO here.limit_count AS n (key, backend, active, pending)
    SELECT k, pg_backend_pid(), sum(d.active), sum(d.pending)
    FROM (
        SELECT c.lane,
            count(*) FILTER (WHERE c.status IN ('claimed', 'running'))
                - count(*) FILTER (WHERE c.from_status IN ('claimed', 'running')) AS active,
            count(*) FILTER (WHERE c.status IN ('pending', 'retry'))
                - count(*) FILTER (WHERE c.from_status IN ('pending', 'retry')) AS pending
        FROM changed c
        WHERE c.from_status <> c.status
        GROUP BY c.lane
    ) d
    LEFT JOIN here.lane l ON l.id = d.lane,
        unnest(coalesce(l.keys, here.windlass_refuse_lane(d.lane))) AS k
    WHERE d.active <> 0 OR d.pending <> 0
    GROUP BY k
    HAVING sum(d.active) <> 0 OR sum(d.pending) <> 0
    ORDER BY k
    ON CONFLICT (key, backend) DO UPDATE
    SET active = n.active + excluded.active, pending = n.pending + excluded.pending;
    RETURN NULL;
END $$;
ALTER FUNCTION here.windlass_record_change() RESET ALL;

CREATE OR REPLACE FUNCTION here.windlass_sit(lock int) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    place int := hashtext('windlass ' || here_name);
    first int := pg_backend_pid() % 8;
BEGIN
    PERFORM pg_advisory_xact_lock_shared(place, lock);
    FOR n IN 0..7 LOOP
        IF pg_try_advisory_xact_lock(place, 16 * lock + (first + n) % 8) THEN
            RETURN;
        END IF;
    END LOOP;
    PERFORM pg_advisory_xact_lock(place, 16 * lock + first);
END $$;
ALTER FUNCTION here.windlass_sit(int) RESET ALL;

CREATE OR REPLACE FUNCTION here.windlass_share_or_fail(
    lock int, adding int, keys text[], most_active bigint[], most_pending bigint[])
RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    needed bigint := adding * 8;
BEGIN
    IF lock & 1 <> 0 THEN
        PERFORM here.windlass_sit(1);
    END IF;
    IF lock & 2 <> 0 THEN
        PERFORM here.windlass_sit(2);
    END IF;
    -- A statement of its own, which sees what was committed before the lock was had.
    PERFORM 1
    FROM unnest(keys, most_active, most_pending) AS k (key, most_active, most_pending),
        LATERAL (
            SELECT sum(c.active) AS active, sum(c.pending) AS pending
            FROM here.limit_count c WHERE c.key = k.key) h
    WHERE coalesce(h.active, 0) + needed > k.most_active
       OR coalesce(h.pending, 0) + needed > k.most_pending;
    IF FOUND THEN
        RAISE EXCEPTION 'windlass: there is too little room to share' USING ERRCODE = 'WL001';
    END IF;
    RETURN TRUE;
END $$;
ALTER FUNCTION here.windlass_share_or_fail(int, int, text[], bigint[], bigint[]) RESET ALL;

$functions$, 'here_name', quote_literal(current_schema())),
    'here.', quote_ident(current_schema()) || '.');
END $migration$;

-- A trigger of columns is not even looked at by a statement that sets none of them.
CREATE TRIGGER task_state_fixes_what_was_submitted
    BEFORE UPDATE OF id, profile, queue, created_at, max_retries ON task_state FOR EACH ROW
    WHEN (NEW.id <> OLD.id OR NEW.profile <> OLD.profile OR NEW.queue <> OLD.queue
          OR NEW.created_at <> OLD.created_at OR NEW.max_retries <> OLD.max_retries)
    EXECUTE FUNCTION windlass_refuse('what was submitted never changes');
DROP TRIGGER task_state_guard_update ON task_state;
CREATE TRIGGER task_state_guard_update BEFORE UPDATE ON task_state FOR EACH ROW
    WHEN (NEW.change_id = OLD.change_id OR NEW.from_status IS DISTINCT FROM OLD.status
          OR NEW.xid <= OLD.xid OR NEW.updated_at < OLD.updated_at
          OR NEW.status = OLD.status
              AND (NEW.lease_id <> OLD.lease_id OR NEW.attempt <> OLD.attempt)
          OR NEW.status = 'waiting_for_approval' OR OLD.status = 'waiting_for_approval')
    EXECUTE FUNCTION windlass_guard_update();
