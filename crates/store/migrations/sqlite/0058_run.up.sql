-- Which run of a step began last. Numbers of runs are the log's, so they tell what came first among
-- all tasks of a family, whatever the clocks say, and a late call about a run from one about the
-- next. Steps that were begun before have none, and come before all that have one.
ALTER TABLE step ADD COLUMN run INTEGER;
CREATE INDEX step_run ON step (run) WHERE run IS NOT NULL;

-- A question that needs several people is approved by so many, also when the task is moved by hand;
-- of one that needs a single voice whoever moves it is that.
DROP TRIGGER approval_closes_with_its_task;
CREATE TRIGGER approval_closes_with_its_task BEFORE UPDATE ON approval
WHEN OLD.status = 'open' AND NEW.status <> 'open'
BEGIN
    SELECT RAISE(ABORT, 'windlass: approval: its task waits for it; move the task')
    WHERE EXISTS (
        SELECT 1 FROM task_state WHERE id = NEW.task_id AND approval_id = NEW.id);
    SELECT RAISE(ABORT, 'windlass: approval: it needs the voices of more people')
    WHERE (NEW.kind = 'replay' OR NEW.required > 1) AND NEW.status = 'approved'
        AND NEW.required > (
        SELECT count(*) FROM approval_vote WHERE approval_id = NEW.id AND choice = 'approve');
END;
