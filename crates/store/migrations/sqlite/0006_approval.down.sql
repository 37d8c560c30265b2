-- Removes voices, tokens and what was asked; requests to replay that wait for an answer are gone.
INSERT INTO retention_gate (open) VALUES (1);
DROP INDEX audit_event;
DROP TABLE approval_token;
DROP TABLE approval_vote;
DROP TRIGGER approval_is_awaited;
DROP TRIGGER approval_is_not_replaced;
DROP TRIGGER approval_is_answered_once;
DROP TRIGGER approval_closes_with_its_task;
DROP TRIGGER approval_is_kept;
-- Without their request they would mean nothing.
DELETE FROM approval WHERE kind = 'replay';
DELETE FROM retention_gate;
DROP INDEX approval_granted;
DROP INDEX approval_status;
DROP INDEX approval_recent;
DROP INDEX approval_open;
ALTER TABLE approval DROP COLUMN request;
ALTER TABLE approval DROP COLUMN requested_by;
ALTER TABLE approval DROP COLUMN required;
ALTER TABLE approval DROP COLUMN occurrence;
ALTER TABLE approval DROP COLUMN digest;
ALTER TABLE approval DROP COLUMN arguments;
ALTER TABLE approval DROP COLUMN action;
ALTER TABLE approval DROP COLUMN kind;
CREATE UNIQUE INDEX approval_open ON approval (task_id) WHERE status = 'open';

CREATE TRIGGER approval_is_awaited BEFORE INSERT ON approval
WHEN NEW.rowid > 0 OR NEW.status <> 'open' OR NOT EXISTS (
    SELECT 1 FROM task_state WHERE id = NEW.task_id AND approval_id = NEW.id)
BEGIN
    SELECT RAISE(ABORT, 'windlass: approval: it begins open, when its task begins to wait for it');
END;
CREATE TRIGGER approval_is_not_replaced BEFORE INSERT ON approval
WHEN EXISTS (SELECT 1 FROM approval WHERE id = NEW.id)
    OR EXISTS (SELECT 1 FROM approval WHERE task_id = NEW.task_id AND status = 'open')
BEGIN
    SELECT RAISE(ABORT, 'windlass: approval: the id exists, or the task has an open one');
END;
CREATE TRIGGER approval_is_answered_once BEFORE UPDATE ON approval
WHEN NEW.rowid <> OLD.rowid OR NEW.id <> OLD.id OR NEW.task_id <> OLD.task_id
    OR NEW.gate <> OLD.gate OR NEW.created_at <> OLD.created_at
    OR OLD.status <> 'open'
        AND (NEW.status <> OLD.status OR NEW.decided_at IS NOT OLD.decided_at)
BEGIN
    SELECT RAISE(ABORT, 'windlass: approval: an answer is written once');
END;
CREATE TRIGGER approval_closes_with_its_task BEFORE UPDATE ON approval
WHEN OLD.status = 'open' AND NEW.status <> 'open' AND EXISTS (
    SELECT 1 FROM task_state WHERE id = NEW.task_id AND approval_id = NEW.id)
BEGIN
    SELECT RAISE(ABORT, 'windlass: approval: its task waits for it; move the task');
END;
CREATE TRIGGER approval_is_kept BEFORE DELETE ON approval
WHEN NOT EXISTS (SELECT 1 FROM retention_gate) OR NOT EXISTS (
    SELECT 1 FROM task_state st JOIN profile p ON p.profile = st.profile
    WHERE st.id = OLD.task_id AND st.finished_at + p.retention_ms
        <= CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER))
BEGIN
    SELECT RAISE(ABORT, 'windlass: approval: only the retention duty removes rows');
END;
