-- Waits and signals; migrations/postgres/0004_wait.up.sql says more.

CREATE TABLE wait (
    task_id TEXT PRIMARY KEY NOT NULL,
    kind TEXT NOT NULL CHECK (
        kind = 'time' OR kind = 'signal' OR kind = 'task' OR kind = 'person'),
    step_id TEXT NOT NULL,
    lease_id TEXT,
    wake_at INTEGER,
    signal TEXT,
    key TEXT,
    child_id TEXT,
    created_at INTEGER NOT NULL,
    CONSTRAINT a_time_is_waited_for CHECK (kind <> 'time' OR wake_at IS NOT NULL),
    CONSTRAINT a_signal_has_a_name CHECK ((kind = 'signal') = (signal IS NOT NULL)),
    CONSTRAINT a_task_is_named CHECK ((kind = 'task') = (child_id IS NOT NULL))
) STRICT, WITHOUT ROWID;
CREATE INDEX wait_timer ON wait (wake_at) WHERE wake_at IS NOT NULL;
CREATE INDEX wait_signal ON wait (signal, key, created_at) WHERE key IS NOT NULL;
CREATE INDEX wait_child ON wait (child_id) WHERE child_id IS NOT NULL;

CREATE TABLE signal (
    id TEXT PRIMARY KEY NOT NULL CHECK (length(id) = 36),
    name TEXT NOT NULL,
    task_id TEXT,
    key TEXT,
    payload TEXT NOT NULL CHECK (json_valid(payload)),
    request_digest TEXT NOT NULL,
    sent_by TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    taken_by TEXT,
    taken_at INTEGER,
    CONSTRAINT told_to_a_task_or_a_key CHECK ((task_id IS NULL) <> (key IS NULL)),
    CONSTRAINT taken_by_somebody CHECK ((taken_by IS NULL) = (taken_at IS NULL)),
    CONSTRAINT names_are_bounded CHECK (
        length(CAST(name AS BLOB)) BETWEEN 1 AND 255
        AND (key IS NULL OR length(CAST(key AS BLOB)) <= 255))
) STRICT, WITHOUT ROWID;
CREATE INDEX signal_of_task ON signal (task_id, name, created_at, id) WHERE task_id IS NOT NULL;
CREATE INDEX signal_of_key ON signal (key, name, created_at, id)
    WHERE key IS NOT NULL AND taken_by IS NULL;

CREATE TRIGGER signal_is_new BEFORE INSERT ON signal
WHEN EXISTS (SELECT 1 FROM signal WHERE id = NEW.id)
BEGIN SELECT RAISE(ABORT, 'windlass: the signal exists; what was told is kept'); END;
CREATE TRIGGER signal_is_taken_once BEFORE UPDATE ON signal
WHEN OLD.taken_by IS NOT NULL OR NEW.taken_by IS NULL OR NEW.id <> OLD.id OR NEW.name <> OLD.name
    OR NEW.task_id IS NOT OLD.task_id OR NEW.key IS NOT OLD.key OR NEW.sent_by <> OLD.sent_by
    OR NEW.created_at <> OLD.created_at OR NEW.payload <> OLD.payload
BEGIN SELECT RAISE(ABORT, 'windlass: a signal is taken once and never changes'); END;
