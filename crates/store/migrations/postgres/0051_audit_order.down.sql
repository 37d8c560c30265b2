SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

CREATE OR REPLACE FUNCTION windlass_log_is_ahead() RETURNS boolean LANGUAGE sql STABLE
SET search_path FROM CURRENT AS $$
    SELECT greatest((SELECT max(xid) FROM task_history),
                    (SELECT max(xid) FROM task_tally_position)) >= windlass_next_xid()
$$;
CREATE OR REPLACE FUNCTION windlass_rebase_log() RETURNS bigint LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
DECLARE
    reached bigint;
BEGIN
    IF NOT windlass_log_is_ahead() THEN
        RETURN NULL;
    END IF;
    -- Whoever waits for this lock plans its statement anew, with the new base.
    LOCK TABLE task_state IN ACCESS EXCLUSIVE MODE;
    reached := greatest((SELECT max(xid) FROM task_history),
                        (SELECT max(xid) FROM task_tally_position));
    EXECUTE format('CREATE OR REPLACE FUNCTION windlass_xid_base() RETURNS bigint '
        'LANGUAGE sql STABLE PARALLEL SAFE RETURN %s::bigint', reached);
    RETURN reached;
END $$;

DROP INDEX audit_order;
ALTER TABLE audit DROP COLUMN xid;
