-- Which run of a step began last. Numbers of runs are the log's, so they tell what came first among
-- all tasks of a family, whatever the clocks say, and a late call about a run from one about the
-- next. Steps that were begun before have none, and come before all that have one.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

ALTER TABLE step ADD COLUMN run bigint;

-- A question that needs several people is approved by so many, also when the task is moved by hand;
-- of one that needs a single voice whoever moves it is that.
CREATE OR REPLACE FUNCTION windlass_check_approval_closing() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    IF pg_trigger_depth() < 2 AND EXISTS (
        SELECT 1 FROM task_state WHERE id = NEW.task_id AND approval_id = NEW.id)
    THEN
        RAISE EXCEPTION 'windlass: task % waits for approval %', NEW.task_id, NEW.id
            USING HINT = 'Move the task; its approval follows.';
    END IF;
    IF (NEW.kind = 'replay' OR NEW.required > 1) AND NEW.status = 'approved'
        AND NEW.required > (
        SELECT count(*) FROM approval_vote WHERE approval_id = NEW.id AND choice = 'approve')
    THEN
        RAISE EXCEPTION 'windlass: approval % needs the voices of % people', NEW.id, NEW.required
            USING HINT = 'Use the API: what was asked is carried out with the approval.';
    END IF;
    RETURN NEW;
END $$;
