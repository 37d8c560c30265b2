-- Removes voices, tokens and what was asked; requests to replay that wait for an answer are gone.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

DROP INDEX audit_event;
DROP TABLE approval_token;
DROP TABLE approval_vote;
DROP FUNCTION windlass_check_vote();
DROP TRIGGER approval_is_answered_once ON approval;
-- Without their request they would mean nothing.
ALTER TABLE approval DISABLE TRIGGER USER;
DELETE FROM approval WHERE kind = 'replay';
ALTER TABLE approval ENABLE TRIGGER USER;
DROP INDEX approval_granted;
DROP INDEX approval_status;
DROP INDEX approval_recent;
DROP INDEX approval_open;
ALTER TABLE approval
    DROP COLUMN request, DROP COLUMN requested_by, DROP COLUMN required, DROP COLUMN occurrence,
    DROP COLUMN digest, DROP COLUMN arguments, DROP COLUMN action, DROP COLUMN kind;
CREATE UNIQUE INDEX approval_open ON approval (task_id) WHERE status = 'open';

CREATE OR REPLACE FUNCTION windlass_check_approval_task() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    IF NEW.status <> 'open' THEN
        RAISE EXCEPTION 'windlass: an approval begins open';
    END IF;
    -- Locked, so that the task cannot end while it asks.
    PERFORM 1 FROM task_state WHERE id = NEW.task_id AND status = 'running' FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'windlass: task % is not running, so it cannot ask for an approval',
            NEW.task_id;
    END IF;
    RETURN NEW;
END $$;

CREATE OR REPLACE FUNCTION windlass_check_approval_awaited() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM approval WHERE id = NEW.id AND status = 'open') AND NOT EXISTS (
        SELECT 1 FROM task_state WHERE id = NEW.task_id AND approval_id = NEW.id)
    THEN
        RAISE EXCEPTION 'windlass: approval % is open, but task % does not wait for it',
            NEW.id, NEW.task_id
            USING HINT = 'Move the task in the same transaction; its approval follows.';
    END IF;
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION windlass_check_approval_closing() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    IF pg_trigger_depth() < 2 AND EXISTS (
        SELECT 1 FROM task_state WHERE id = NEW.task_id AND approval_id = NEW.id)
    THEN
        RAISE EXCEPTION 'windlass: task % waits for approval %', NEW.task_id, NEW.id
            USING HINT = 'Move the task; its approval follows.';
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER approval_is_answered_once BEFORE UPDATE ON approval FOR EACH ROW
    WHEN (NEW.id <> OLD.id OR NEW.task_id <> OLD.task_id OR NEW.gate <> OLD.gate
          OR NEW.created_at <> OLD.created_at
          OR OLD.status <> 'open' AND (NEW.status <> OLD.status
              OR NEW.decided_at IS DISTINCT FROM OLD.decided_at))
    EXECUTE FUNCTION windlass_refuse('an answer is written once');
