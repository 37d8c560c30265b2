-- What needs a person, and who is told; migrations/postgres/0005_trouble.up.sql says more.

CREATE TABLE notice (
    id TEXT PRIMARY KEY NOT NULL CHECK (length(id) = 36),
    kind TEXT NOT NULL,
    severity TEXT NOT NULL,
    subject_id TEXT,
    body TEXT NOT NULL CHECK (json_valid(body)),
    sealed TEXT CHECK (sealed IS NULL OR json_valid(sealed)),
    created_at INTEGER NOT NULL,
    due_at INTEGER NOT NULL,
    tries INTEGER NOT NULL DEFAULT 0,
    last_error TEXT,
    delivered_to TEXT NOT NULL DEFAULT '[]' CHECK (json_valid(delivered_to)),
    delivered_at INTEGER,
    given_up_at INTEGER,
    CONSTRAINT names_are_bounded CHECK (length(CAST(kind AS BLOB)) BETWEEN 1 AND 100),
    CONSTRAINT severity_is_known CHECK (
        severity = 'critical' OR severity = 'warning' OR severity = 'info'),
    CONSTRAINT body_is_bounded CHECK (length(CAST(body AS BLOB)) <= 1048576),
    CONSTRAINT tries_are_counted CHECK (tries >= 0),
    CONSTRAINT one_end CHECK (delivered_at IS NULL OR given_up_at IS NULL),
    CONSTRAINT a_secret_ends_with_it CHECK (
        sealed IS NULL OR delivered_at IS NULL AND given_up_at IS NULL)
) STRICT, WITHOUT ROWID;
CREATE INDEX notice_due ON notice (severity, due_at)
    WHERE delivered_at IS NULL AND given_up_at IS NULL;
CREATE INDEX notice_untried ON notice (created_at)
    WHERE delivered_at IS NULL AND given_up_at IS NULL AND tries = 0;
CREATE INDEX notice_recent ON notice (created_at, id);
CREATE INDEX notice_subject ON notice (subject_id) WHERE subject_id IS NOT NULL;

-- ---------------------------------------------------------------------------------------------
-- Alerts.

CREATE TABLE alert (
    id TEXT PRIMARY KEY NOT NULL CHECK (length(id) = 36),
    type TEXT NOT NULL,
    severity TEXT NOT NULL,
    task_id TEXT,
    message TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    acknowledged_at INTEGER,
    acknowledged_by TEXT,
    CONSTRAINT names_are_bounded CHECK (
        length(CAST(type AS BLOB)) BETWEEN 1 AND 100
        AND length(CAST(message AS BLOB)) <= 16384
        AND (acknowledged_by IS NULL
             OR length(CAST(acknowledged_by AS BLOB)) BETWEEN 1 AND 255)),
    CONSTRAINT severity_is_known CHECK (
        severity = 'critical' OR severity = 'warning' OR severity = 'info'),
    CONSTRAINT acknowledged_by_somebody CHECK (
        (acknowledged_at IS NULL) = (acknowledged_by IS NULL))
) STRICT, WITHOUT ROWID;
CREATE INDEX alert_recent ON alert (created_at, id);
CREATE INDEX alert_open ON alert (created_at, id) WHERE acknowledged_at IS NULL;
CREATE INDEX alert_task ON alert (task_id, created_at, id) WHERE task_id IS NOT NULL;
CREATE INDEX alert_acknowledged ON alert (acknowledged_at) WHERE acknowledged_at IS NOT NULL;

-- Whoever raises an alert, the program or a trigger, tells it with the same words.
CREATE TRIGGER alert_is_told AFTER INSERT ON alert BEGIN
    INSERT INTO notice (id, kind, severity, subject_id, body, created_at, due_at)
    VALUES (NEW.id, 'alert', NEW.severity, NEW.id,
            json_object('type', NEW.type, 'severity', NEW.severity, 'task', NEW.task_id,
                        'message', NEW.message),
            NEW.created_at, NEW.created_at)
    ON CONFLICT (id) DO NOTHING;
END;
CREATE TRIGGER alert_is_not_replaced BEFORE INSERT ON alert
WHEN EXISTS (SELECT 1 FROM alert WHERE id = NEW.id)
BEGIN
    SELECT RAISE(ABORT, 'windlass: alert: the id exists');
END;
CREATE TRIGGER alert_is_acknowledged_once BEFORE UPDATE ON alert
WHEN OLD.acknowledged_at IS NOT NULL OR NEW.id <> OLD.id OR NEW.type <> OLD.type
    OR NEW.severity <> OLD.severity OR NEW.task_id IS NOT OLD.task_id
    OR NEW.message <> OLD.message OR NEW.created_at <> OLD.created_at
BEGIN
    SELECT RAISE(ABORT, 'windlass: alert: it is acknowledged once, and nothing else changes');
END;
CREATE TRIGGER alert_is_kept BEFORE DELETE ON alert WHEN OLD.acknowledged_at IS NULL BEGIN
    SELECT RAISE(ABORT, 'windlass: alert: somebody must acknowledge it first');
END;

-- ---------------------------------------------------------------------------------------------
-- Trouble.

CREATE TABLE trouble (
    task_id TEXT PRIMARY KEY NOT NULL,
    task_status TEXT NOT NULL,
    queue TEXT NOT NULL,
    agent TEXT,
    status TEXT NOT NULL DEFAULT 'pending',
    assignee TEXT,
    failure_count INTEGER NOT NULL,
    entered_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    closed_at INTEGER,
    resolved_by_task TEXT CHECK (resolved_by_task IS NULL OR length(resolved_by_task) = 36),
    CONSTRAINT task_needs_a_person CHECK (task_status IN ('stuck', 'poisoned')),
    CONSTRAINT status_is_known CHECK (
        status = 'pending' OR status = 'investigating' OR status = 'resolved'
        OR status = 'abandoned'),
    CONSTRAINT somebody_looks CHECK (status = 'pending' OR assignee IS NOT NULL),
    CONSTRAINT names_are_bounded CHECK (
        assignee IS NULL OR length(CAST(assignee AS BLOB)) BETWEEN 1 AND 255),
    CONSTRAINT closed_at_its_end CHECK (
        (status IN ('resolved', 'abandoned')) = (closed_at IS NOT NULL)),
    CONSTRAINT only_a_resolution_names_a_task CHECK (
        resolved_by_task IS NULL OR status = 'resolved')
) STRICT, WITHOUT ROWID;
CREATE INDEX trouble_open ON trouble (entered_at, task_id) WHERE closed_at IS NULL;
CREATE INDEX trouble_entered ON trouble (entered_at, task_id);

CREATE TABLE trouble_note (
    id TEXT PRIMARY KEY NOT NULL CHECK (length(id) = 36),
    task_id TEXT NOT NULL,
    at INTEGER NOT NULL,
    author TEXT NOT NULL,
    event TEXT NOT NULL,
    note TEXT,
    CONSTRAINT names_are_bounded CHECK (
        length(CAST(author AS BLOB)) BETWEEN 1 AND 255
        AND (note IS NULL OR length(CAST(note AS BLOB)) BETWEEN 1 AND 65536)),
    CONSTRAINT event_is_known CHECK (
        event = 'assign' OR event = 'investigate' OR event = 'note' OR event = 'resolve'
        OR event = 'abandon'),
    CONSTRAINT a_note_says_something CHECK (event <> 'note' OR note IS NOT NULL)
) STRICT, WITHOUT ROWID;
CREATE INDEX trouble_note_task ON trouble_note (task_id, at, id);

-- What ended before there was this table.
INSERT INTO trouble (task_id, task_status, queue, agent, failure_count, entered_at, updated_at)
SELECT st.id, st.status, st.queue, s.agent, st.retry_count + 1, st.updated_at, st.updated_at
FROM task_state st JOIN task_spec s ON s.id = st.id
WHERE st.status IN ('stuck', 'poisoned');

-- Its condition is false for all that goes well. Whether the history of the same change is written
-- before or after is SQLite's choice, so this failure is counted apart. An update written by hand
-- brings a change_id without hyphens.
CREATE TRIGGER task_state_enters_trouble AFTER UPDATE ON task_state
WHEN NEW.status IN ('stuck', 'poisoned') AND OLD.status <> NEW.status BEGIN
    INSERT INTO trouble (task_id, task_status, queue, agent, failure_count, entered_at,
                         updated_at)
    SELECT NEW.id, NEW.status, NEW.queue, s.agent, 1 + (
               SELECT count(*) FROM task_history h
               WHERE h.task_id = NEW.id AND h.change_id <> NEW.change_id
                 AND h.metadata -> 'error' IS NOT NULL),
           NEW.updated_at, NEW.updated_at
    FROM task_spec s WHERE s.id = NEW.id;
    INSERT INTO alert (id, type, severity, task_id, message, created_at)
    VALUES (CASE length(NEW.change_id) WHEN 36 THEN NEW.change_id ELSE
                substr(NEW.change_id, 1, 8) || '-' || substr(NEW.change_id, 9, 4) || '-'
                || substr(NEW.change_id, 13, 4) || '-' || substr(NEW.change_id, 17, 4) || '-'
                || substr(NEW.change_id, 21, 12) END,
            CASE NEW.status WHEN 'stuck' THEN 'stuck_task' ELSE 'poison_task' END,
            'critical', NEW.id,
            'task ' || NEW.id || ' in queue ' || NEW.queue || ' is ' || NEW.status || ': '
                || (NEW.error ->> 'code') || ': '
                || substr(coalesce(NEW.error ->> 'message', ''), 1, 1000),
            NEW.updated_at);
END;

CREATE TRIGGER trouble_writes_itself BEFORE INSERT ON trouble
WHEN NEW.status <> 'pending' OR EXISTS (SELECT 1 FROM trouble WHERE task_id = NEW.task_id)
    OR NOT EXISTS (
        SELECT 1 FROM task_state
        WHERE id = NEW.task_id AND status = NEW.task_status AND updated_at = NEW.entered_at)
BEGIN
    SELECT RAISE(ABORT, 'windlass: trouble: the database writes it');
END;
CREATE TRIGGER trouble_follows_its_workflow BEFORE UPDATE ON trouble BEGIN
    SELECT RAISE(ABORT, 'windlass: trouble: it is closed; it never changes')
    WHERE OLD.closed_at IS NOT NULL;
    SELECT RAISE(ABORT, 'windlass: trouble: it goes from pending to investigating to its end')
    WHERE NEW.status <> OLD.status
        AND NOT (OLD.status = 'pending' AND NEW.status = 'investigating')
        AND NOT (OLD.status = 'investigating' AND NEW.status IN ('resolved', 'abandoned'));
    SELECT RAISE(ABORT, 'windlass: trouble: what happened to a task never changes')
    WHERE NEW.task_id <> OLD.task_id OR NEW.task_status <> OLD.task_status
        OR NEW.queue <> OLD.queue OR NEW.agent IS NOT OLD.agent
        OR NEW.failure_count <> OLD.failure_count OR NEW.entered_at <> OLD.entered_at;
END;
CREATE TRIGGER trouble_is_kept BEFORE DELETE ON trouble
WHEN NOT EXISTS (SELECT 1 FROM retention_gate) OR NOT EXISTS (
    SELECT 1 FROM task_state st JOIN profile p ON p.profile = st.profile
    WHERE st.id = OLD.task_id AND st.finished_at + p.retention_ms
        <= CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER))
BEGIN
    SELECT RAISE(ABORT, 'windlass: trouble: only the retention duty removes rows');
END;
CREATE TRIGGER trouble_note_is_new BEFORE INSERT ON trouble_note
WHEN EXISTS (SELECT 1 FROM trouble_note WHERE id = NEW.id)
BEGIN
    SELECT RAISE(ABORT, 'windlass: trouble_note: notes are appended');
END;
CREATE TRIGGER trouble_note_is_append_only BEFORE UPDATE ON trouble_note BEGIN
    SELECT RAISE(ABORT, 'windlass: trouble_note: notes are appended');
END;
CREATE TRIGGER trouble_note_is_kept BEFORE DELETE ON trouble_note
WHEN NOT EXISTS (SELECT 1 FROM retention_gate) OR NOT EXISTS (
    SELECT 1 FROM task_state st JOIN profile p ON p.profile = st.profile
    WHERE st.id = OLD.task_id AND st.finished_at + p.retention_ms
        <= CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER))
BEGIN
    SELECT RAISE(ABORT, 'windlass: trouble_note: only the retention duty removes rows');
END;
