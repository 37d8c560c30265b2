-- The audit is read in the order of its commits. A sequence gives its numbers when they are asked
-- for: an entry that commits late has a lower one than what was read before it, and whoever goes on
-- after a number would never see it. As in the log of tasks, a reader stays below the oldest
-- transaction that still runs.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- What is there has committed: it stands by its number, before everything new.
ALTER TABLE audit ADD COLUMN xid bigint NOT NULL DEFAULT 0;
ALTER TABLE audit ALTER COLUMN xid SET DEFAULT windlass_xid();
CREATE INDEX audit_order ON audit (xid, seq);

-- Whether the log or the audit has numbers that this cluster has not reached: see
-- windlass_rebase_log.
CREATE OR REPLACE FUNCTION windlass_log_is_ahead() RETURNS boolean LANGUAGE sql STABLE
SET search_path FROM CURRENT AS $$
    SELECT greatest((SELECT max(xid) FROM task_history),
                    (SELECT max(xid) FROM task_tally_position),
                    (SELECT max(xid) FROM audit)) >= windlass_next_xid()
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
                        (SELECT max(xid) FROM task_tally_position),
                        (SELECT max(xid) FROM audit));
    EXECUTE format('CREATE OR REPLACE FUNCTION windlass_xid_base() RETURNS bigint '
        'LANGUAGE sql STABLE PARALLEL SAFE RETURN %s::bigint', reached);
    RETURN reached;
END $$;
