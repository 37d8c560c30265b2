SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

DROP FUNCTION windlass_share_or_fail(int, int, text[], bigint[], bigint[]);
DROP TRIGGER task_state_records_its_beginning ON task_state;
DROP TRIGGER task_state_records_its_changes ON task_state;
DROP TRIGGER task_history_writes_itself ON task_history;
DROP FUNCTION windlass_record_beginning();
DROP FUNCTION windlass_record_change();
DROP FUNCTION windlass_refuse_held(task_state);
DROP FUNCTION windlass_is_claimed_at_submit(task_state);
DROP FUNCTION windlass_refuse_spec(task_spec);
DROP FUNCTION windlass_broken_spec_rule(task_spec);
DROP FUNCTION windlass_refuse_state(task_state);
DROP FUNCTION windlass_broken_state_rule(task_state);

CREATE FUNCTION windlass_begin_held() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    -- A claim at the moment of the submit, and nothing that only a later life could have brought.
    IF (NEW.event = 'claim' AND NEW.from_status = 'pending' AND NEW.change_id <> NEW.id
        AND NEW.change_lease_id = NEW.lease_id AND NEW.actor = NEW.claimed_by
        AND NEW.claim_id IS NOT NULL AND NEW.claimed_at = NEW.created_at
        AND NEW.entered_at = NEW.created_at AND NEW.updated_at = NEW.created_at
        AND NEW.run_at <= NEW.created_at AND NEW.attempt = 1 AND NEW.retry_count = 0
        AND NEW.release_count = 0 AND NEW.last_heartbeat_at IS NULL
        AND NEW.stream_started_at IS NULL AND NEW.error IS NULL AND NEW.reason IS NULL
        AND NEW.metadata IS NULL
        AND NEW.started_at IS NOT DISTINCT FROM
            CASE WHEN NEW.status = 'running' THEN NEW.created_at END) IS NOT TRUE
    THEN
        RAISE EXCEPTION 'windlass: insert of task_state is refused: a task begins as pending, or '
            'claimed by the statement that submits it'
            USING HINT = 'Use the API or the windlass command; they keep the history true.';
    END IF;
    IF NOT EXISTS (
        SELECT 1 FROM transition t
        WHERE t.profile = NEW.profile AND t.from_status = NEW.from_status
          AND t.event = NEW.event AND t.to_status = NEW.status)
    THEN
        PERFORM windlass_refuse_transition(NEW);
    END IF;
    INSERT INTO task_history (xid, task_id, change_id, to_status, event, actor, at)
    SELECT windlass_xid(), NEW.id, NEW.id, NEW.from_status, 'submit', s.submitted_by,
           NEW.created_at
    FROM task_spec s WHERE s.id = NEW.id;
    RETURN NULL;
END $$;

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

CREATE FUNCTION windlass_check_rules() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
DECLARE
    broken record;
BEGIN
    SELECT c.id, r.rule INTO broken
    FROM changed c, LATERAL (
        SELECT CASE
            WHEN (octet_length(queue) BETWEEN 1 AND 255 AND octet_length(name) <= 255 AND
                octet_length(agent) <= 255 AND octet_length(venture) <= 255 AND
                octet_length(portfolio) <= 255 AND octet_length(stage) <= 255 AND
                octet_length(owner) <= 255 AND octet_length(caller) <= 255 AND
                octet_length(callee) <= 255 AND octet_length(pool) <= 255 AND
                octet_length(llm) <= 255 AND octet_length(model) <= 255 AND
                octet_length(tier) <= 255 AND octet_length(correlation_id) <= 255 AND
                octet_length(idempotency_scope) <= 255 AND octet_length(idempotency_key) <=
                255 AND octet_length(submitted_by) BETWEEN 1 AND 255) IS FALSE
                THEN 'names_are_bounded'
            WHEN (priority BETWEEN -32768 AND 32767) IS FALSE
                THEN 'priority_is_bounded'
            WHEN (profile NOT IN ('delegation', 'ledger') OR (caller IS NOT NULL AND callee
                IS NOT NULL)) IS FALSE
                THEN 'a_delegation_names_both_sides'
            WHEN (profile <> 'inference' OR pool IS NOT NULL) IS FALSE
                THEN 'an_inference_names_its_pool'
        END AS rule) r
    WHERE r.rule IS NOT NULL
    LIMIT 1;
    IF FOUND THEN
        PERFORM windlass_refuse_row('task_spec', broken.id, broken.rule);
    END IF;
    RETURN NULL;
END $$;

CREATE FUNCTION windlass_write_history() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
DECLARE
    mine bigint := windlass_xid();
    -- A made-up number must not put the task's changes out of sight.
    highest bigint := greatest(mine, windlass_next_xid() - 1);
    broken record;
BEGIN
    SELECT c.id, r.rule INTO broken
    FROM changed c, LATERAL (
        SELECT CASE
            WHEN (from_status IS NOT NULL OR (event = 'submit' AND status = 'pending')) IS FALSE
                THEN 'legal_transition_at_the_beginning'
            WHEN (finished_at IS NULL OR from_status <> status) IS FALSE
                THEN 'legal_transition_before_the_end'
            WHEN (CASE WHEN profile = 'ledger' THEN lease_id IS NULL ELSE (status IN
                ('claimed', 'running')) = (lease_id IS NOT NULL) END) IS FALSE
                THEN 'lease_only_while_held'
            WHEN (CASE WHEN status IN ('claimed', 'running') THEN lease_expires_at IS NOT
                NULL OR profile IN ('delegation', 'ledger') ELSE lease_expires_at IS NULL
                END) IS FALSE
                THEN 'lease_expiry_only_while_held'
            WHEN (CASE WHEN status IN ('claimed', 'running') THEN claimed_by IS NOT NULL
                ELSE claimed_by IS NULL OR finished_at IS NOT NULL END) IS FALSE
                THEN 'holder_while_held'
            WHEN (status NOT IN ('failed', 'stuck', 'poisoned') OR error IS NOT NULL) IS FALSE
                THEN 'error_says_why_it_ended'
            -- Readers rely on it: one row that they cannot read would spoil every page it is on.
            WHEN (error IS NULL OR CASE WHEN jsonb_typeof(error -> 'code') = 'string' THEN
                coalesce(jsonb_typeof(error -> 'message'), 'string') = 'string' AND error -
                ARRAY['code', 'message', 'detail'] = '{}' ELSE FALSE END) IS FALSE
                THEN 'error_has_a_code'
            WHEN (result IS NULL OR status = 'completed') IS FALSE
                THEN 'result_only_when_completed'
            WHEN ((status = 'waiting_for_approval') = (approval_id IS NOT NULL)) IS FALSE
                THEN 'approval_exactly_while_waiting_for_it'
            WHEN (retry_count BETWEEN 0 AND max_retries AND max_retries BETWEEN 0 AND 100) IS FALSE
                THEN 'retries_are_bounded'
            WHEN (octet_length(actor) BETWEEN 1 AND 255) IS FALSE
                THEN 'actor_is_bounded'
            WHEN (attempt BETWEEN 0 AND 1000000000 AND release_count BETWEEN 0 AND 20) IS FALSE
                THEN 'counters_are_bounded'
            WHEN (NOT ready OR (status IN ('pending', 'retry') AND profile <> 'ledger')) IS FALSE
                THEN 'ready_only_when_claimable'
        END AS rule) r
    WHERE r.rule IS NOT NULL
    LIMIT 1;
    IF FOUND THEN
        PERFORM windlass_refuse_row('task_state', broken.id, broken.rule);
    END IF;
    IF TG_OP = 'INSERT' THEN
        INSERT INTO task_history (xid, task_id, change_id, from_status, to_status, event, actor,
                                  reason, lease_id, metadata, at)
        SELECT mine, coalesce((
                   SELECT s.id FROM task_spec s
                   WHERE s.id = c.id AND s.profile = c.profile AND s.queue = c.queue
                     AND s.run_at = c.run_at AND s.max_retries = c.max_retries
                     AND s.created_at = c.created_at), windlass_refuse_beginning(c)),
               change_id, from_status, status, event, actor, reason, change_lease_id, metadata,
               updated_at
        FROM changed c;
        RETURN NULL;
    END IF;
    INSERT INTO task_history (xid, task_id, change_id, from_status, to_status, event, actor,
                              reason, lease_id, metadata, at)
    SELECT least(greatest(c.xid, mine), highest), c.id, c.change_id, c.from_status, c.status,
           coalesce(t.event, windlass_refuse_transition(c)), c.actor, c.reason,
           c.change_lease_id, c.metadata, c.updated_at
    FROM changed c
    LEFT JOIN transition t ON t.profile = c.profile AND t.from_status = c.from_status
        AND t.event = c.event AND t.to_status = c.status
    WHERE c.from_status <> c.status;
    RETURN NULL;
END $$;

CREATE TRIGGER task_state_begins_held AFTER INSERT ON task_state FOR EACH ROW
    WHEN (NEW.from_status IS NOT NULL)
    EXECUTE FUNCTION windlass_begin_held();
CREATE TRIGGER task_state_insert_count AFTER INSERT ON task_state
    REFERENCING NEW TABLE AS changed FOR EACH STATEMENT
    EXECUTE FUNCTION windlass_count_tasks();
CREATE TRIGGER task_state_update_count AFTER UPDATE ON task_state
    REFERENCING NEW TABLE AS changed FOR EACH STATEMENT
    EXECUTE FUNCTION windlass_count_tasks();
CREATE TRIGGER task_state_insert_history AFTER INSERT ON task_state
    REFERENCING NEW TABLE AS changed FOR EACH STATEMENT
    EXECUTE FUNCTION windlass_write_history();
CREATE TRIGGER task_state_update_history AFTER UPDATE ON task_state
    REFERENCING NEW TABLE AS changed FOR EACH STATEMENT
    EXECUTE FUNCTION windlass_write_history();
CREATE TRIGGER task_spec_keeps_its_rules AFTER INSERT ON task_spec
    REFERENCING NEW TABLE AS changed FOR EACH STATEMENT
    EXECUTE FUNCTION windlass_check_rules();
CREATE TRIGGER task_history_writes_itself BEFORE INSERT ON task_history
    FOR EACH STATEMENT EXECUTE FUNCTION windlass_refuse_insert();
