SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

DROP TRIGGER task_state_guard_update ON task_state;
CREATE TRIGGER task_state_guard_update BEFORE UPDATE ON task_state FOR EACH ROW
    WHEN (NEW.change_id = OLD.change_id OR NEW.from_status IS DISTINCT FROM OLD.status
          OR NEW.xid <= OLD.xid OR NEW.updated_at < OLD.updated_at
          OR NEW.status = OLD.status
              AND (NEW.lease_id <> OLD.lease_id OR NEW.attempt <> OLD.attempt)
          OR NEW.id <> OLD.id OR NEW.profile <> OLD.profile OR NEW.queue <> OLD.queue
          OR NEW.created_at <> OLD.created_at OR NEW.max_retries <> OLD.max_retries
          OR NEW.status = 'waiting_for_approval' OR OLD.status = 'waiting_for_approval')
    EXECUTE FUNCTION windlass_guard_update();
DROP TRIGGER task_state_fixes_what_was_submitted ON task_state;

CREATE OR REPLACE FUNCTION windlass_sit(lock int) RETURNS void LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT AS $$
DECLARE
    first int := pg_backend_pid() % 8;
    place int;
BEGIN
    PERFORM pg_advisory_xact_lock_shared(hashtext('windlass ' || current_schema()), lock);
    FOR n IN 0..7 LOOP
        place := 16 * lock + (first + n) % 8;
        IF pg_try_advisory_xact_lock(hashtext('windlass ' || current_schema()), place) THEN
            RETURN;
        END IF;
    END LOOP;
    PERFORM pg_advisory_xact_lock(hashtext('windlass ' || current_schema()), 16 * lock + first);
END $$;

CREATE OR REPLACE FUNCTION windlass_share_or_fail(
    lock int, adding int, keys text[], most_active bigint[], most_pending bigint[])
RETURNS boolean LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    needed bigint := adding * 8;
BEGIN
    IF lock & 1 <> 0 THEN
        PERFORM windlass_sit(1);
    END IF;
    IF lock & 2 <> 0 THEN
        PERFORM windlass_sit(2);
    END IF;
    -- A statement of its own, which sees what was committed before the lock was had.
    PERFORM 1
    FROM unnest(keys, most_active, most_pending) AS k (key, most_active, most_pending),
        LATERAL (
            SELECT sum(c.active) AS active, sum(c.pending) AS pending
            FROM limit_count c WHERE c.key = k.key) h
    WHERE coalesce(h.active, 0) + needed > k.most_active
       OR coalesce(h.pending, 0) + needed > k.most_pending;
    IF FOUND THEN
        RAISE EXCEPTION 'windlass: there is too little room to share' USING ERRCODE = 'WL001';
    END IF;
    RETURN TRUE;
END $$;

CREATE OR REPLACE FUNCTION windlass_record_beginning() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
DECLARE
    mine bigint := windlass_xid();
BEGIN
    INSERT INTO task_history (xid, task_id, change_id, from_status, to_status, event, actor,
                              reason, lease_id, metadata, at)
    -- A task that begins in a worker's hands was submitted before that.
    SELECT mine, c.id, c.id, NULL,
           CASE WHEN t.event IS NOT NULL AND windlass_is_claimed_at_submit(c) THEN c.from_status
               ELSE windlass_refuse_held(c) END,
           'submit', coalesce(s.submitted_by, windlass_refuse_beginning(c)::text), NULL, NULL,
           NULL, c.created_at
    FROM changed c
    LEFT JOIN task_spec s ON s.id = c.id
    LEFT JOIN transition t ON t.profile = c.profile AND t.from_status = c.from_status
        AND t.event = c.event AND t.to_status = c.status
    WHERE c.from_status IS NOT NULL
    UNION ALL
    SELECT mine, coalesce((
               SELECT CASE WHEN windlass_broken_spec_rule(s) IS NULL THEN s.id
                   ELSE windlass_refuse_spec(s) END
               FROM task_spec s
               WHERE s.id = c.id AND s.profile = c.profile AND s.queue = c.queue
                 AND s.run_at = c.run_at AND s.max_retries = c.max_retries
                 AND s.created_at = c.created_at), windlass_refuse_beginning(c)),
           c.change_id, c.from_status, c.status, c.event, c.actor, c.reason, c.change_lease_id,
           c.metadata, c.updated_at
    FROM changed c
    WHERE CASE WHEN windlass_broken_state_rule(c) IS NULL THEN TRUE
        ELSE windlass_refuse_state(c) END;
    INSERT INTO limit_count AS n (key, backend, active, pending)
    SELECT k, pg_backend_pid(), sum(d.active), sum(d.pending)
    FROM (
        SELECT lane, count(*) FILTER (WHERE status IN ('claimed', 'running')) AS active,
            count(*) FILTER (WHERE status IN ('pending', 'retry')) AS pending
        FROM changed
        GROUP BY lane
    ) d
    LEFT JOIN lane l ON l.id = d.lane,
        unnest(coalesce(l.keys, windlass_refuse_lane(d.lane))) AS k
    GROUP BY k
    ORDER BY k
    ON CONFLICT (key, backend) DO UPDATE
    SET active = n.active + excluded.active, pending = n.pending + excluded.pending;
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION windlass_record_change() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
DECLARE
    mine bigint := windlass_xid();
    -- A made-up number must not put the task's changes out of sight.
    highest bigint := greatest(mine, windlass_next_xid() - 1);
BEGIN
    INSERT INTO task_history (xid, task_id, change_id, from_status, to_status, event, actor,
                              reason, lease_id, metadata, at)
    SELECT least(greatest(c.xid, mine), highest), c.id, c.change_id, c.from_status, c.status,
           coalesce(t.event, windlass_refuse_transition(c)), c.actor, c.reason,
           c.change_lease_id, c.metadata, c.updated_at
    FROM changed c
    LEFT JOIN transition t ON t.profile = c.profile AND t.from_status = c.from_status
        AND t.event = c.event AND t.to_status = c.status
    WHERE CASE WHEN windlass_broken_state_rule(c) IS NULL THEN c.from_status <> c.status
        ELSE windlass_refuse_state(c) END;
    -- A heartbeat moves nothing from one count to another.
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    INSERT INTO limit_count AS n (key, backend, active, pending)
    SELECT k, pg_backend_pid(), sum(d.active), sum(d.pending)
    FROM (
        SELECT lane,
            count(*) FILTER (WHERE status IN ('claimed', 'running'))
                - count(*) FILTER (WHERE from_status IN ('claimed', 'running')) AS active,
            count(*) FILTER (WHERE status IN ('pending', 'retry'))
                - count(*) FILTER (WHERE from_status IN ('pending', 'retry')) AS pending
        FROM changed
        WHERE from_status <> status
        GROUP BY lane
    ) d
    LEFT JOIN lane l ON l.id = d.lane,
        unnest(coalesce(l.keys, windlass_refuse_lane(d.lane))) AS k
    WHERE d.active <> 0 OR d.pending <> 0
    GROUP BY k
    HAVING sum(d.active) <> 0 OR sum(d.pending) <> 0
    ORDER BY k
    ON CONFLICT (key, backend) DO UPDATE
    SET active = n.active + excluded.active, pending = n.pending + excluded.pending;
    RETURN NULL;
END $$;
