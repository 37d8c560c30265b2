DROP INDEX step_run;
ALTER TABLE step DROP COLUMN run;
DROP TRIGGER approval_closes_with_its_task;
CREATE TRIGGER approval_closes_with_its_task BEFORE UPDATE ON approval
WHEN OLD.status = 'open' AND NEW.status <> 'open'
BEGIN
    SELECT RAISE(ABORT, 'windlass: approval: its task waits for it; move the task')
    WHERE EXISTS (
        SELECT 1 FROM task_state WHERE id = NEW.task_id AND approval_id = NEW.id);
    SELECT RAISE(ABORT, 'windlass: approval: it needs the voices of more people')
    WHERE NEW.kind = 'replay' AND NEW.status = 'approved' AND NEW.required > (
        SELECT count(*) FROM approval_vote WHERE approval_id = NEW.id AND choice = 'approve');
END;
