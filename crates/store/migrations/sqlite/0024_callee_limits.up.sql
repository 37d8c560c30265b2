-- Limits and pauses of an agent are also for the delegations to it. What was submitted before
-- keeps its lane.
DROP TRIGGER task_spec_begins;
CREATE TRIGGER task_spec_begins AFTER INSERT ON task_spec BEGIN
    INSERT INTO lane (queue, profile, venture, portfolio, stage, agent, pending)
    VALUES (NEW.queue, NEW.profile, coalesce(NEW.venture, ''), coalesce(NEW.portfolio, ''),
            coalesce(NEW.stage, ''), coalesce(NEW.agent, NEW.callee, ''), 1)
    ON CONFLICT (queue, profile, venture, portfolio, stage, agent)
    DO UPDATE SET pending = pending + 1;
    INSERT INTO task_state (id, profile, queue, change_id, actor, ready, order_key, run_at,
                            deadline_at, max_retries, created_at, entered_at, updated_at, lane)
    VALUES (NEW.id, NEW.profile, NEW.queue, NEW.id, NEW.submitted_by,
            NEW.run_at <= NEW.created_at AND NEW.profile <> 'ledger',
            -NEW.priority * 35184372088832 + min(NEW.run_at, 35184372088831), NEW.run_at,
            NEW.deadline_at, NEW.max_retries, NEW.created_at, NEW.created_at, NEW.created_at,
            (SELECT id FROM lane
             WHERE queue = NEW.queue AND profile = NEW.profile
               AND venture = coalesce(NEW.venture, '')
               AND portfolio = coalesce(NEW.portfolio, '')
               AND stage = coalesce(NEW.stage, '')
               AND agent = coalesce(NEW.agent, NEW.callee, '')));
    INSERT INTO task_tag (key, value, created_at, task_id)
    SELECT t.key, t.value, NEW.created_at, NEW.id FROM json_each(NEW.tags) AS t
    WHERE NEW.tags IS NOT NULL;
END;
