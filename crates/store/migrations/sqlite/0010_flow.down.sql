DROP TRIGGER task_state_keeps_its_lane;
DROP TRIGGER task_state_update_history;
DROP TRIGGER task_spec_begins;
DROP INDEX task_state_ready;
ALTER TABLE task_state DROP COLUMN lane;
DROP VIEW limit_use;
DROP TABLE pause;
DROP TABLE limit_rate;
DROP TABLE limit_rule;
DROP TABLE lane;

CREATE INDEX task_state_ready ON task_state (queue, profile, order_key, id)
    WHERE ready;
CREATE TRIGGER task_state_update_history AFTER UPDATE ON task_state
WHEN NEW.status <> OLD.status BEGIN
    SELECT RAISE(ABORT, 'windlass: task_state: from_status must say where the task stood')
    WHERE NEW.from_status IS NOT OLD.status;
    INSERT INTO task_history (task_id, change_id, from_status, to_status, event, actor, reason,
                              lease_id, metadata, at)
    VALUES (NEW.id, NEW.change_id, OLD.status, NEW.status, NEW.event, NEW.actor, NEW.reason,
            NEW.change_lease_id, NEW.metadata, NEW.updated_at);
    -- What it asked is answered or withdrawn with it.
    UPDATE approval SET decided_at = NEW.updated_at, status = CASE NEW.event
        WHEN 'approve' THEN 'approved' WHEN 'deny' THEN 'denied'
        WHEN 'expire_approval' THEN 'expired' ELSE 'withdrawn' END
    WHERE OLD.status = 'waiting_for_approval' AND task_id = NEW.id AND status = 'open';
END;
-- What was submitted begins its life at once. (PostgreSQL does it in the submitting statement.)
CREATE TRIGGER task_spec_begins AFTER INSERT ON task_spec BEGIN
    INSERT INTO task_state (id, profile, queue, change_id, actor, ready, order_key, run_at,
                            deadline_at, max_retries, created_at, entered_at, updated_at)
    VALUES (NEW.id, NEW.profile, NEW.queue, NEW.id, NEW.submitted_by,
            NEW.run_at <= NEW.created_at AND NEW.profile <> 'ledger',
            -NEW.priority * 35184372088832 + min(NEW.run_at, 35184372088831), NEW.run_at,
            NEW.deadline_at, NEW.max_retries, NEW.created_at, NEW.created_at, NEW.created_at);
    INSERT INTO task_tag (key, value, created_at, task_id)
    SELECT t.key, t.value, NEW.created_at, NEW.id FROM json_each(NEW.tags) AS t
    WHERE NEW.tags IS NOT NULL;
END;
