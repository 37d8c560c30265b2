-- What needs a person, and who is told.
--
-- A notice is what the service tells the outside by itself: written in the transaction of what it
-- speaks of, sent by a duty afterwards, at least once, under one id.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

CREATE TABLE notice (
    id uuid PRIMARY KEY,
    -- alert, approval …
    kind text NOT NULL,
    severity text NOT NULL,
    -- What it speaks of: an alert's or an approval's id.
    subject_id uuid,
    body jsonb NOT NULL,
    -- What only the receiver may see, such as a token; forgotten with the last try.
    sealed jsonb,
    created_at timestamptz NOT NULL,
    -- When the next try may begin. A try that is under way moves it on, so that nobody else tries.
    due_at timestamptz NOT NULL,
    tries integer NOT NULL DEFAULT 0,
    last_error text,
    -- Which receivers have it already; the others are still tried.
    delivered_to jsonb NOT NULL DEFAULT '[]',
    delivered_at timestamptz,
    given_up_at timestamptz,
    CONSTRAINT names_are_bounded CHECK (octet_length(kind) BETWEEN 1 AND 100),
    CONSTRAINT severity_is_known CHECK (severity IN ('critical', 'warning', 'info')),
    CONSTRAINT body_is_bounded CHECK (octet_length(body::text) <= 1048576),
    CONSTRAINT tries_are_counted CHECK (tries >= 0),
    CONSTRAINT one_end CHECK (delivered_at IS NULL OR given_up_at IS NULL),
    CONSTRAINT a_secret_ends_with_it CHECK (
        sealed IS NULL OR delivered_at IS NULL AND given_up_at IS NULL)
);
CREATE INDEX notice_due ON notice (severity, due_at)
    WHERE delivered_at IS NULL AND given_up_at IS NULL;
CREATE INDEX notice_untried ON notice (created_at)
    WHERE delivered_at IS NULL AND given_up_at IS NULL AND tries = 0;
CREATE INDEX notice_recent ON notice (created_at, id);
CREATE INDEX notice_subject ON notice (subject_id) WHERE subject_id IS NOT NULL;

-- ---------------------------------------------------------------------------------------------
-- Alerts: something happened that somebody should know. Each is told by a notice.

CREATE TABLE alert (
    id uuid PRIMARY KEY,
    -- poison_task, stuck_task …
    type text NOT NULL,
    severity text NOT NULL,
    -- A plain id: an alert outlives its task.
    task_id uuid,
    message text NOT NULL,
    created_at timestamptz NOT NULL,
    acknowledged_at timestamptz,
    acknowledged_by text,
    CONSTRAINT names_are_bounded CHECK (
        octet_length(type) BETWEEN 1 AND 100 AND octet_length(message) <= 16384
        AND (acknowledged_by IS NULL OR octet_length(acknowledged_by) BETWEEN 1 AND 255)),
    CONSTRAINT severity_is_known CHECK (severity IN ('critical', 'warning', 'info')),
    CONSTRAINT acknowledged_by_somebody CHECK (
        (acknowledged_at IS NULL) = (acknowledged_by IS NULL))
);
CREATE INDEX alert_recent ON alert (created_at, id);
CREATE INDEX alert_open ON alert (created_at, id) WHERE acknowledged_at IS NULL;
CREATE INDEX alert_task ON alert (task_id, created_at, id) WHERE task_id IS NOT NULL;
CREATE INDEX alert_acknowledged ON alert (acknowledged_at) WHERE acknowledged_at IS NOT NULL;

-- Whoever raises an alert, the program or a trigger, tells it with the same words.
CREATE FUNCTION windlass_tell_alert() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO notice (id, kind, severity, subject_id, body, created_at, due_at)
    VALUES (NEW.id, 'alert', NEW.severity, NEW.id,
            jsonb_build_object('type', NEW.type, 'severity', NEW.severity, 'task', NEW.task_id,
                               'message', NEW.message),
            NEW.created_at, NEW.created_at)
    ON CONFLICT (id) DO NOTHING;
    RETURN NULL;
END $$;
CREATE TRIGGER alert_is_told AFTER INSERT ON alert FOR EACH ROW
    EXECUTE FUNCTION windlass_tell_alert();
CREATE TRIGGER alert_is_acknowledged_once BEFORE UPDATE ON alert FOR EACH ROW
    WHEN (OLD.acknowledged_at IS NOT NULL OR NEW.id <> OLD.id OR NEW.type <> OLD.type
          OR NEW.severity <> OLD.severity OR NEW.task_id IS DISTINCT FROM OLD.task_id
          OR NEW.message <> OLD.message OR NEW.created_at <> OLD.created_at)
    EXECUTE FUNCTION windlass_refuse('an alert is acknowledged once, and nothing else changes');
CREATE TRIGGER alert_is_kept BEFORE DELETE ON alert FOR EACH ROW
    WHEN (OLD.acknowledged_at IS NULL)
    EXECUTE FUNCTION windlass_refuse('somebody must acknowledge it first');
CREATE TRIGGER alert_is_not_truncated BEFORE TRUNCATE ON alert
    EXECUTE FUNCTION windlass_refuse('somebody must acknowledge it first');

-- ---------------------------------------------------------------------------------------------
-- Trouble: every task that ended poisoned or stuck, and what a person did about it.

CREATE TABLE trouble (
    task_id uuid PRIMARY KEY,
    task_status task_status NOT NULL,
    queue text NOT NULL,
    agent text,
    status text NOT NULL DEFAULT 'pending',
    assignee text,
    failure_count integer NOT NULL,
    entered_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    closed_at timestamptz,
    -- The task that did the work after all.
    resolved_by_task uuid,
    CONSTRAINT task_needs_a_person CHECK (task_status IN ('stuck', 'poisoned')),
    CONSTRAINT status_is_known CHECK (
        status IN ('pending', 'investigating', 'resolved', 'abandoned')),
    CONSTRAINT somebody_looks CHECK (status = 'pending' OR assignee IS NOT NULL),
    CONSTRAINT names_are_bounded CHECK (
        assignee IS NULL OR octet_length(assignee) BETWEEN 1 AND 255),
    CONSTRAINT closed_at_its_end CHECK (
        (status IN ('resolved', 'abandoned')) = (closed_at IS NOT NULL)),
    CONSTRAINT only_a_resolution_names_a_task CHECK (
        resolved_by_task IS NULL OR status = 'resolved')
);
CREATE INDEX trouble_open ON trouble (entered_at, task_id) WHERE closed_at IS NULL;
CREATE INDEX trouble_entered ON trouble (entered_at, task_id);

CREATE TABLE trouble_note (
    id uuid PRIMARY KEY,
    task_id uuid NOT NULL,
    at timestamptz NOT NULL,
    author text NOT NULL,
    -- What the author did: assign, investigate, note, resolve, abandon.
    event text NOT NULL,
    note text,
    CONSTRAINT names_are_bounded CHECK (
        octet_length(author) BETWEEN 1 AND 255
        AND (note IS NULL OR octet_length(note) BETWEEN 1 AND 65536)),
    CONSTRAINT event_is_known CHECK (
        event IN ('assign', 'investigate', 'note', 'resolve', 'abandon')),
    CONSTRAINT a_note_says_something CHECK (event <> 'note' OR note IS NOT NULL)
);
CREATE INDEX trouble_note_task ON trouble_note (task_id, at, id);

-- What ended before there was this table.
INSERT INTO trouble (task_id, task_status, queue, agent, failure_count, entered_at, updated_at)
SELECT st.id, st.status, st.queue, s.agent, st.retry_count + 1, st.updated_at, st.updated_at
FROM task_state st JOIN task_spec s ON s.id = st.id
WHERE st.status IN ('stuck', 'poisoned');

-- A row trigger beside the one that writes the history: its condition is false for all that goes
-- well, and then it costs a comparison. It runs before the history of the same statement is
-- written, so this failure is not there yet.
CREATE FUNCTION windlass_enter_trouble() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO trouble (task_id, task_status, queue, agent, failure_count, entered_at,
                         updated_at)
    SELECT NEW.id, NEW.status, NEW.queue, s.agent, 1 + (
               SELECT count(*) FROM task_history h
               WHERE h.task_id = NEW.id AND h.change_id <> NEW.change_id
                 AND h.metadata -> 'error' IS NOT NULL),
           NEW.updated_at, NEW.updated_at
    FROM task_spec s WHERE s.id = NEW.id;
    INSERT INTO alert (id, type, severity, task_id, message, created_at)
    VALUES (NEW.change_id,
            CASE NEW.status WHEN 'stuck' THEN 'stuck_task' ELSE 'poison_task' END,
            'critical', NEW.id,
            format('task %s in queue %s is %s: %s: %s', NEW.id, NEW.queue, NEW.status,
                   NEW.error ->> 'code', left(NEW.error ->> 'message', 1000)),
            NEW.updated_at)
    ON CONFLICT (id) DO NOTHING;
    RETURN NULL;
END $$;
CREATE TRIGGER task_state_enters_trouble AFTER UPDATE ON task_state FOR EACH ROW
    WHEN ((NEW.status = 'poisoned' OR NEW.status = 'stuck') AND OLD.status <> NEW.status)
    EXECUTE FUNCTION windlass_enter_trouble();

CREATE TRIGGER trouble_writes_itself BEFORE INSERT ON trouble
    EXECUTE FUNCTION windlass_refuse_insert();
CREATE FUNCTION windlass_check_trouble() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    IF OLD.closed_at IS NOT NULL THEN
        RAISE EXCEPTION 'windlass: the trouble with task % is %; it never changes', OLD.task_id,
            OLD.status USING HINT = 'Append a note; replay the task for another try.';
    END IF;
    IF NEW.status <> OLD.status AND (OLD.status, NEW.status) NOT IN (
        ('pending', 'investigating'), ('investigating', 'resolved'),
        ('investigating', 'abandoned'))
    THEN
        RAISE EXCEPTION 'windlass: trouble that is % cannot become %', OLD.status, NEW.status
            USING HINT = 'It goes from pending to investigating to resolved or abandoned.';
    END IF;
    IF NEW.task_id <> OLD.task_id OR NEW.task_status <> OLD.task_status
        OR NEW.queue <> OLD.queue OR NEW.agent IS DISTINCT FROM OLD.agent
        OR NEW.failure_count <> OLD.failure_count OR NEW.entered_at <> OLD.entered_at
    THEN
        RAISE EXCEPTION 'windlass: what happened to task % never changes', OLD.task_id;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER trouble_follows_its_workflow BEFORE UPDATE ON trouble FOR EACH ROW
    EXECUTE FUNCTION windlass_check_trouble();
CREATE TRIGGER trouble_is_not_truncated BEFORE TRUNCATE ON trouble
    EXECUTE FUNCTION windlass_refuse('it goes with its task');
CREATE TRIGGER trouble_is_kept BEFORE DELETE ON trouble
    EXECUTE FUNCTION windlass_refuse_delete();
CREATE TRIGGER trouble_is_kept_while_needed BEFORE DELETE ON trouble FOR EACH ROW
    EXECUTE FUNCTION windlass_check_retention('task_id');
CREATE TRIGGER trouble_note_is_append_only BEFORE UPDATE OR TRUNCATE ON trouble_note
    EXECUTE FUNCTION windlass_refuse('notes are appended');
CREATE TRIGGER trouble_note_is_kept BEFORE DELETE ON trouble_note
    EXECUTE FUNCTION windlass_refuse_delete();
CREATE TRIGGER trouble_note_is_kept_while_needed BEFORE DELETE ON trouble_note FOR EACH ROW
    EXECUTE FUNCTION windlass_check_retention('task_id');
