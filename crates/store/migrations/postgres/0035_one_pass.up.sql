-- One pass a statement: what a batch costs beside its own rows is mostly the setting up of queries
-- inside triggers. The rules of both tables, the two rows of a task that begins in a worker's hands
-- and the history are now one INSERT, and the counts of limits follow in the same function.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- Which rule a row breaks. Plain SQL without settings, so that it becomes part of the query.
CREATE FUNCTION windlass_broken_state_rule(c task_state) RETURNS text LANGUAGE sql STABLE
PARALLEL SAFE RETURN CASE
    WHEN (c.from_status IS NOT NULL OR (c.event = 'submit' AND c.status = 'pending')) IS FALSE
        THEN 'legal_transition_at_the_beginning'
    WHEN (c.finished_at IS NULL OR c.from_status <> c.status) IS FALSE
        THEN 'legal_transition_before_the_end'
    WHEN (CASE WHEN c.profile = 'ledger' THEN c.lease_id IS NULL
        ELSE (c.status IN ('claimed', 'running')) = (c.lease_id IS NOT NULL) END) IS FALSE
        THEN 'lease_only_while_held'
    WHEN (CASE WHEN c.status IN ('claimed', 'running')
        THEN c.lease_expires_at IS NOT NULL OR c.profile IN ('delegation', 'ledger')
        ELSE c.lease_expires_at IS NULL END) IS FALSE
        THEN 'lease_expiry_only_while_held'
    WHEN (CASE WHEN c.status IN ('claimed', 'running') THEN c.claimed_by IS NOT NULL
        ELSE c.claimed_by IS NULL OR c.finished_at IS NOT NULL END) IS FALSE
        THEN 'holder_while_held'
    WHEN (c.status NOT IN ('failed', 'stuck', 'poisoned') OR c.error IS NOT NULL) IS FALSE
        THEN 'error_says_why_it_ended'
    -- Readers rely on it: one row that they cannot read would spoil every page it is on.
    WHEN (c.error IS NULL OR CASE WHEN jsonb_typeof(c.error -> 'code') = 'string'
        THEN coalesce(jsonb_typeof(c.error -> 'message'), 'string') = 'string'
            AND c.error - ARRAY['code', 'message', 'detail'] = '{}'
        ELSE FALSE END) IS FALSE
        THEN 'error_has_a_code'
    WHEN (c.result IS NULL OR c.status = 'completed') IS FALSE
        THEN 'result_only_when_completed'
    WHEN ((c.status = 'waiting_for_approval') = (c.approval_id IS NOT NULL)) IS FALSE
        THEN 'approval_exactly_while_waiting_for_it'
    WHEN (c.retry_count BETWEEN 0 AND c.max_retries AND c.max_retries BETWEEN 0 AND 100) IS FALSE
        THEN 'retries_are_bounded'
    WHEN (octet_length(c.actor) BETWEEN 1 AND 255) IS FALSE
        THEN 'actor_is_bounded'
    WHEN (c.attempt BETWEEN 0 AND 1000000000 AND c.release_count BETWEEN 0 AND 20) IS FALSE
        THEN 'counters_are_bounded'
    WHEN (NOT c.ready OR (c.status IN ('pending', 'retry') AND c.profile <> 'ledger')) IS FALSE
        THEN 'ready_only_when_claimable'
    END;

CREATE FUNCTION windlass_refuse_state(c task_state) RETURNS boolean LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM windlass_refuse_row('task_state', c.id, windlass_broken_state_rule(c));
    RETURN FALSE;
END $$;

CREATE FUNCTION windlass_broken_spec_rule(s task_spec) RETURNS text LANGUAGE sql STABLE
PARALLEL SAFE RETURN CASE
    WHEN (octet_length(s.queue) BETWEEN 1 AND 255 AND octet_length(s.name) <= 255
        AND octet_length(s.agent) <= 255 AND octet_length(s.venture) <= 255
        AND octet_length(s.portfolio) <= 255 AND octet_length(s.stage) <= 255
        AND octet_length(s.owner) <= 255 AND octet_length(s.caller) <= 255
        AND octet_length(s.callee) <= 255 AND octet_length(s.pool) <= 255
        AND octet_length(s.llm) <= 255 AND octet_length(s.model) <= 255
        AND octet_length(s.tier) <= 255 AND octet_length(s.correlation_id) <= 255
        AND octet_length(s.idempotency_scope) <= 255
        AND octet_length(s.idempotency_key) <= 255
        AND octet_length(s.submitted_by) BETWEEN 1 AND 255) IS FALSE
        THEN 'names_are_bounded'
    WHEN (s.priority BETWEEN -32768 AND 32767) IS FALSE
        THEN 'priority_is_bounded'
    WHEN (s.profile NOT IN ('delegation', 'ledger')
        OR (s.caller IS NOT NULL AND s.callee IS NOT NULL)) IS FALSE
        THEN 'a_delegation_names_both_sides'
    WHEN (s.profile <> 'inference' OR s.pool IS NOT NULL) IS FALSE
        THEN 'an_inference_names_its_pool'
    END;

CREATE FUNCTION windlass_refuse_spec(s task_spec) RETURNS uuid LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM windlass_refuse_row('task_spec', s.id, windlass_broken_spec_rule(s));
    RETURN NULL;
END $$;

-- A claim at the moment of the submit, and nothing that only a later life could have brought.
CREATE FUNCTION windlass_is_claimed_at_submit(c task_state) RETURNS boolean LANGUAGE sql STABLE
PARALLEL SAFE RETURN (c.event = 'claim' AND c.from_status = 'pending' AND c.change_id <> c.id
    AND c.change_lease_id = c.lease_id AND c.actor = c.claimed_by
    AND c.claim_id IS NOT NULL AND c.claimed_at = c.created_at
    AND c.entered_at = c.created_at AND c.updated_at = c.created_at
    AND c.run_at <= c.created_at AND c.attempt = 1 AND c.retry_count = 0
    AND c.release_count = 0 AND c.last_heartbeat_at IS NULL
    AND c.stream_started_at IS NULL AND c.error IS NULL AND c.reason IS NULL
    AND c.metadata IS NULL
    AND c.started_at IS NOT DISTINCT FROM CASE WHEN c.status = 'running' THEN c.created_at END);

CREATE FUNCTION windlass_refuse_held(c task_state) RETURNS task_status LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    IF windlass_is_claimed_at_submit(c) IS NOT TRUE THEN
        RAISE EXCEPTION 'windlass: insert of task_state is refused: a task begins as pending, or '
            'claimed by the statement that submits it'
            USING HINT = 'Use the API or the windlass command; they keep the history true.';
    END IF;
    PERFORM windlass_refuse_transition(c);
    RETURN NULL;
END $$;

DROP TRIGGER task_state_begins_held ON task_state;
DROP TRIGGER task_state_insert_count ON task_state;
DROP TRIGGER task_state_update_count ON task_state;
DROP TRIGGER task_state_insert_history ON task_state;
DROP TRIGGER task_state_update_history ON task_state;
DROP TRIGGER task_spec_keeps_its_rules ON task_spec;
DROP FUNCTION windlass_begin_held();
DROP FUNCTION windlass_count_tasks();
DROP FUNCTION windlass_write_history();
DROP FUNCTION windlass_check_rules();

CREATE FUNCTION windlass_record_beginning() RETURNS trigger LANGUAGE plpgsql
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

CREATE FUNCTION windlass_record_change() RETURNS trigger LANGUAGE plpgsql
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

CREATE TRIGGER task_state_records_its_beginning AFTER INSERT ON task_state
    REFERENCING NEW TABLE AS changed FOR EACH STATEMENT
    EXECUTE FUNCTION windlass_record_beginning();
CREATE TRIGGER task_state_records_its_changes AFTER UPDATE ON task_state
    REFERENCING NEW TABLE AS changed FOR EACH STATEMENT
    EXECUTE FUNCTION windlass_record_change();

-- Asked before the function is called, not inside it.
DROP TRIGGER task_history_writes_itself ON task_history;
CREATE TRIGGER task_history_writes_itself BEFORE INSERT ON task_history
    FOR EACH STATEMENT WHEN (pg_trigger_depth() = 0)
    EXECUTE FUNCTION windlass_refuse_insert();

-- Like windlass_share where there is plenty of room, and an error where there is not. Whoever hopes
-- for plenty sends it in one flight with the statement that needs the room.
CREATE FUNCTION windlass_share_or_fail(
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
