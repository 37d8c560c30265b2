-- Messages; migrations/postgres/0045_message.up.sql says more.

CREATE TABLE message_transition (
    from_status TEXT NOT NULL,
    to_status TEXT NOT NULL,
    PRIMARY KEY (from_status, to_status)
) STRICT, WITHOUT ROWID;
--@message_transitions
INSERT INTO message_transition (from_status, to_status) VALUES
    ('pending', 'delivered'),
    ('pending', 'expired'),
    ('pending', 'dead_lettered'),
    ('delivered', 'acknowledged'),
    ('delivered', 'pending'),
    ('delivered', 'dead_lettered'),
    ('delivered', 'expired');
--@end
CREATE TRIGGER message_transition_is_fixed_insert BEFORE INSERT ON message_transition BEGIN
    SELECT RAISE(ABORT, 'windlass: message_transition: a migration changes the state machine');
END;
CREATE TRIGGER message_transition_is_fixed_update BEFORE UPDATE ON message_transition BEGIN
    SELECT RAISE(ABORT, 'windlass: message_transition: a migration changes the state machine');
END;
CREATE TRIGGER message_transition_is_fixed_delete BEFORE DELETE ON message_transition BEGIN
    SELECT RAISE(ABORT, 'windlass: message_transition: a migration changes the state machine');
END;

CREATE TABLE message (
    id TEXT PRIMARY KEY NOT NULL DEFAULT (
        lower(hex(randomblob(4)) || '-' || hex(randomblob(2)) || '-4'
              || substr(hex(randomblob(2)), 2) || '-8' || substr(hex(randomblob(2)), 2) || '-'
              || hex(randomblob(6))))
        CHECK (length(id) = 36),
    from_agent TEXT NOT NULL DEFAULT 'sql:sqlite',
    to_agent TEXT NOT NULL,
    type TEXT NOT NULL,
    priority INTEGER NOT NULL DEFAULT 0,
    payload TEXT NOT NULL DEFAULT 'null' CHECK (json_valid(payload)),
    correlation_id TEXT,
    idempotency_key TEXT,
    request_digest TEXT NOT NULL DEFAULT '',
    sent_by TEXT NOT NULL DEFAULT 'sql:sqlite',
    redelivery_of TEXT CHECK (redelivery_of IS NULL OR length(redelivery_of) = 36),
    status TEXT NOT NULL DEFAULT 'pending',
    created_at INTEGER NOT NULL
        DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)),
    due_at INTEGER NOT NULL
        DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)),
    expires_at INTEGER,
    deliveries INTEGER NOT NULL DEFAULT 0,
    lease_id TEXT CHECK (lease_id IS NULL OR length(lease_id) = 36),
    lease_expires_at INTEGER,
    handled_by TEXT,
    delivered_at INTEGER,
    converses INTEGER NOT NULL DEFAULT 0 CHECK (converses IN (0, 1)),
    last_error TEXT,
    finished_at INTEGER,
    CONSTRAINT status_is_known CHECK (
        status = 'pending' OR status = 'delivered' OR status = 'acknowledged'
        OR status = 'dead_lettered' OR status = 'expired'),
    CONSTRAINT names_are_bounded CHECK (
        length(CAST(from_agent AS BLOB)) BETWEEN 1 AND 255
        AND length(CAST(to_agent AS BLOB)) BETWEEN 1 AND 255
        AND length(CAST(type AS BLOB)) BETWEEN 1 AND 100
        AND length(CAST(sent_by AS BLOB)) BETWEEN 1 AND 255
        AND (correlation_id IS NULL OR length(CAST(correlation_id AS BLOB)) BETWEEN 1 AND 255)
        AND (idempotency_key IS NULL OR length(CAST(idempotency_key AS BLOB)) BETWEEN 1 AND 255)
        AND (handled_by IS NULL OR length(CAST(handled_by AS BLOB)) BETWEEN 1 AND 255)),
    CONSTRAINT priority_is_bounded CHECK (priority BETWEEN -32768 AND 32767),
    CONSTRAINT deliveries_are_counted CHECK (deliveries BETWEEN 0 AND 5),
    CONSTRAINT held_under_a_lease CHECK (
        (status = 'delivered') = (lease_expires_at IS NOT NULL)
        AND (status <> 'delivered' OR lease_id IS NOT NULL AND handled_by IS NOT NULL
             AND delivered_at IS NOT NULL AND deliveries > 0)),
    CONSTRAINT finished_at_its_end CHECK (
        (status IN ('pending', 'delivered')) = (finished_at IS NULL))
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX message_key ON message (from_agent, idempotency_key)
    WHERE idempotency_key IS NOT NULL;
CREATE INDEX message_inbox ON message (to_agent, priority DESC, created_at, id)
    WHERE status = 'pending';
CREATE UNIQUE INDEX message_conversation ON message (to_agent)
    WHERE status = 'delivered' AND converses;
CREATE INDEX message_held ON message (to_agent) WHERE status = 'delivered';
CREATE UNIQUE INDEX message_lease_id ON message (lease_id) WHERE status = 'delivered';
CREATE INDEX message_lease ON message (lease_expires_at) WHERE status = 'delivered';
CREATE INDEX message_expiry ON message (expires_at)
    WHERE status = 'pending' AND expires_at IS NOT NULL;
CREATE INDEX message_recent ON message (created_at, id);
CREATE INDEX message_to ON message (to_agent, created_at, id);
CREATE INDEX message_from ON message (from_agent, created_at, id);
CREATE INDEX message_correlation ON message (correlation_id, created_at, id)
    WHERE correlation_id IS NOT NULL;

CREATE TABLE inbox (
    agent TEXT PRIMARY KEY NOT NULL,
    opened_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- ---------------------------------------------------------------------------------------------
-- Dead letters.

CREATE TABLE dead_letter (
    message_id TEXT PRIMARY KEY NOT NULL CHECK (length(message_id) = 36),
    original TEXT NOT NULL CHECK (json_valid(original)),
    from_agent TEXT NOT NULL,
    to_agent TEXT NOT NULL,
    type TEXT NOT NULL,
    correlation_id TEXT,
    reason TEXT NOT NULL,
    detail TEXT NOT NULL,
    deliveries INTEGER NOT NULL,
    status TEXT NOT NULL DEFAULT 'pending',
    assignee TEXT,
    entered_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    closed_at INTEGER,
    resolved_by_message TEXT
        CHECK (resolved_by_message IS NULL OR length(resolved_by_message) = 36),
    CONSTRAINT reason_is_known CHECK (
        reason = 'unknown_agent' OR reason = 'archived_agent' OR reason = 'delivery_limit'
        OR reason = 'rejected' OR reason = 'invalid'),
    CONSTRAINT status_is_known CHECK (
        status = 'pending' OR status = 'investigating' OR status = 'resolved'
        OR status = 'abandoned'),
    CONSTRAINT somebody_looks CHECK (status = 'pending' OR assignee IS NOT NULL),
    CONSTRAINT names_are_bounded CHECK (
        (assignee IS NULL OR length(CAST(assignee AS BLOB)) BETWEEN 1 AND 255)
        AND length(CAST(detail AS BLOB)) <= 65536),
    CONSTRAINT closed_at_its_end CHECK (
        (status IN ('resolved', 'abandoned')) = (closed_at IS NOT NULL)),
    CONSTRAINT only_a_resolution_names_a_message CHECK (
        resolved_by_message IS NULL OR status = 'resolved')
) STRICT, WITHOUT ROWID;
CREATE INDEX dead_letter_open ON dead_letter (entered_at, message_id) WHERE closed_at IS NULL;
CREATE INDEX dead_letter_entered ON dead_letter (entered_at, message_id);

CREATE TABLE dead_letter_note (
    id TEXT PRIMARY KEY NOT NULL CHECK (length(id) = 36),
    message_id TEXT NOT NULL,
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
CREATE INDEX dead_letter_note_message ON dead_letter_note (message_id, at, id);

-- ---------------------------------------------------------------------------------------------
-- What the database does by itself, and what it refuses. The first runs for the store's own writer
-- as well.

CREATE TRIGGER message_opens_its_inbox AFTER INSERT ON message WHEN NEW.status = 'pending' BEGIN
    INSERT INTO inbox (agent, opened_at) SELECT NEW.to_agent, NEW.created_at
    WHERE NOT EXISTS (SELECT 1 FROM inbox WHERE agent = NEW.to_agent);
END;
CREATE TRIGGER message_is_new BEFORE INSERT ON message BEGIN
    SELECT RAISE(ABORT, 'windlass: message: the id or idempotency key exists')
    WHERE EXISTS (SELECT 1 FROM message WHERE id = NEW.id)
        OR NEW.idempotency_key IS NOT NULL AND EXISTS (
            SELECT 1 FROM message
            WHERE from_agent = NEW.from_agent AND idempotency_key = NEW.idempotency_key);
    SELECT RAISE(ABORT, 'windlass: message: it begins pending, and nobody has had it')
    WHERE NEW.status = 'pending' AND NEW.deliveries <> 0
        OR NEW.status <> 'pending' AND NOT (NEW.status = 'dead_lettered' AND EXISTS (
            SELECT 1 FROM dead_letter WHERE message_id = NEW.id));
END;
CREATE TRIGGER message_follows_the_machine BEFORE UPDATE ON message BEGIN
    SELECT RAISE(ABORT, 'windlass: message: it has ended; it never changes')
    WHERE OLD.finished_at IS NOT NULL;
    SELECT RAISE(ABORT, 'windlass: message: what it says never changes')
    WHERE NEW.id <> OLD.id OR NEW.from_agent <> OLD.from_agent OR NEW.to_agent <> OLD.to_agent
        OR NEW.type <> OLD.type OR NEW.priority <> OLD.priority OR NEW.payload <> OLD.payload
        OR NEW.correlation_id IS NOT OLD.correlation_id
        OR NEW.idempotency_key IS NOT OLD.idempotency_key
        OR NEW.request_digest <> OLD.request_digest OR NEW.sent_by <> OLD.sent_by
        OR NEW.redelivery_of IS NOT OLD.redelivery_of OR NEW.created_at <> OLD.created_at
        OR NEW.expires_at IS NOT OLD.expires_at OR NEW.deliveries < OLD.deliveries;
    SELECT RAISE(ABORT, 'windlass: message: the machine has no such transition')
    WHERE NEW.status <> OLD.status AND NOT EXISTS (
        SELECT 1 FROM message_transition
        WHERE from_status = OLD.status AND to_status = NEW.status);
    SELECT RAISE(ABORT, 'windlass: message: it has no dead letter')
    WHERE NEW.status = 'dead_lettered' AND NOT EXISTS (
        SELECT 1 FROM dead_letter WHERE message_id = NEW.id);
    SELECT RAISE(ABORT, 'windlass: message: its agent is in another conversation')
    WHERE NEW.status = 'delivered' AND NEW.converses AND EXISTS (
        SELECT 1 FROM message
        WHERE to_agent = NEW.to_agent AND status = 'delivered' AND converses AND id <> NEW.id);
END;
CREATE TRIGGER message_is_kept BEFORE DELETE ON message BEGIN
    SELECT RAISE(ABORT, 'windlass: message: what was said is kept');
END;
CREATE TRIGGER inbox_is_new BEFORE INSERT ON inbox
WHEN EXISTS (SELECT 1 FROM inbox WHERE agent = NEW.agent) BEGIN
    SELECT RAISE(ABORT, 'windlass: inbox: it stays');
END;
CREATE TRIGGER inbox_stays BEFORE UPDATE ON inbox BEGIN
    SELECT RAISE(ABORT, 'windlass: inbox: it stays');
END;
CREATE TRIGGER inbox_is_kept BEFORE DELETE ON inbox BEGIN
    SELECT RAISE(ABORT, 'windlass: inbox: it stays');
END;

CREATE TRIGGER dead_letter_is_new BEFORE INSERT ON dead_letter
WHEN NEW.status <> 'pending'
    OR EXISTS (SELECT 1 FROM dead_letter WHERE message_id = NEW.message_id)
BEGIN
    SELECT RAISE(ABORT, 'windlass: dead_letter: it begins pending, once for each message');
END;
CREATE TRIGGER dead_letter_follows_its_workflow BEFORE UPDATE ON dead_letter BEGIN
    SELECT RAISE(ABORT, 'windlass: dead_letter: it is closed; it never changes')
    WHERE OLD.closed_at IS NOT NULL;
    SELECT RAISE(ABORT, 'windlass: dead_letter: it goes from pending to investigating to its end')
    WHERE NEW.status <> OLD.status
        AND NOT (OLD.status = 'pending' AND NEW.status = 'investigating')
        AND NOT (OLD.status = 'investigating' AND NEW.status IN ('resolved', 'abandoned'));
    SELECT RAISE(ABORT, 'windlass: dead_letter: what happened to a message never changes')
    WHERE NEW.message_id <> OLD.message_id OR NEW.original <> OLD.original
        OR NEW.from_agent <> OLD.from_agent OR NEW.to_agent <> OLD.to_agent
        OR NEW.type <> OLD.type OR NEW.correlation_id IS NOT OLD.correlation_id
        OR NEW.reason <> OLD.reason OR NEW.detail <> OLD.detail
        OR NEW.deliveries <> OLD.deliveries OR NEW.entered_at <> OLD.entered_at;
END;
CREATE TRIGGER dead_letter_is_kept BEFORE DELETE ON dead_letter BEGIN
    SELECT RAISE(ABORT, 'windlass: dead_letter: it is closed, never removed');
END;
CREATE TRIGGER dead_letter_note_is_new BEFORE INSERT ON dead_letter_note
WHEN EXISTS (SELECT 1 FROM dead_letter_note WHERE id = NEW.id) BEGIN
    SELECT RAISE(ABORT, 'windlass: dead_letter_note: notes are appended');
END;
CREATE TRIGGER dead_letter_note_is_append_only BEFORE UPDATE ON dead_letter_note BEGIN
    SELECT RAISE(ABORT, 'windlass: dead_letter_note: notes are appended');
END;
CREATE TRIGGER dead_letter_note_is_kept BEFORE DELETE ON dead_letter_note BEGIN
    SELECT RAISE(ABORT, 'windlass: dead_letter_note: notes are appended');
END;
