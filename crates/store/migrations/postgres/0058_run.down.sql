SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

ALTER TABLE step DROP COLUMN run;

CREATE OR REPLACE FUNCTION windlass_check_approval_closing() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    IF pg_trigger_depth() < 2 AND EXISTS (
        SELECT 1 FROM task_state WHERE id = NEW.task_id AND approval_id = NEW.id)
    THEN
        RAISE EXCEPTION 'windlass: task % waits for approval %', NEW.task_id, NEW.id
            USING HINT = 'Move the task; its approval follows.';
    END IF;
    IF NEW.kind = 'replay' AND NEW.status = 'approved' AND NEW.required > (
        SELECT count(*) FROM approval_vote WHERE approval_id = NEW.id AND choice = 'approve')
    THEN
        RAISE EXCEPTION 'windlass: approval % needs the voices of % people', NEW.id, NEW.required
            USING HINT = 'Use the API: what was asked is carried out with the approval.';
    END IF;
    RETURN NEW;
END $$;
