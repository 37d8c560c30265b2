SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

DROP TRIGGER task_state_begins_held ON task_state;
DROP FUNCTION windlass_begin_held();
CREATE TRIGGER task_state_begins_at_submit BEFORE INSERT ON task_state FOR EACH ROW
    WHEN (NEW.from_status IS NOT NULL)
    EXECUTE FUNCTION windlass_refuse('a task begins as pending');

CREATE OR REPLACE FUNCTION windlass_write_history() RETURNS trigger LANGUAGE plpgsql
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
        INSERT INTO task_history (xid, task_id, change_id, to_status, event, actor, reason,
                                  metadata, at)
        SELECT mine, coalesce((
                   SELECT s.id FROM task_spec s
                   WHERE s.id = c.id AND s.profile = c.profile AND s.queue = c.queue
                     AND s.run_at = c.run_at AND s.max_retries = c.max_retries
                     AND s.created_at = c.created_at), windlass_refuse_beginning(c)),
               change_id, status, event, actor, reason, metadata, updated_at
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
