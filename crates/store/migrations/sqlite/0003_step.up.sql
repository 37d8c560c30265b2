-- Steps: what a task has done so far; migrations/postgres/0003_step.up.sql says more.

CREATE TABLE step_transition (
    from_status TEXT NOT NULL,
    to_status TEXT NOT NULL,
    PRIMARY KEY (from_status, to_status)
) STRICT, WITHOUT ROWID;
--@step_transitions
INSERT INTO step_transition (from_status, to_status) VALUES
    ('begun', 'done'),
    ('begun', 'failed'),
    ('begun', 'in_doubt'),
    ('failed', 'begun'),
    ('failed', 'in_doubt'),
    ('waiting', 'done'),
    ('in_doubt', 'done'),
    ('in_doubt', 'allowed'),
    ('in_doubt', 'rejected'),
    ('allowed', 'begun');
--@end
CREATE TRIGGER step_transition_is_fixed_i BEFORE INSERT ON step_transition
BEGIN SELECT RAISE(ABORT, 'windlass: a migration changes the state machine'); END;
CREATE TRIGGER step_transition_is_fixed_u BEFORE UPDATE ON step_transition
BEGIN SELECT RAISE(ABORT, 'windlass: a migration changes the state machine'); END;
CREATE TRIGGER step_transition_is_fixed_d BEFORE DELETE ON step_transition
BEGIN SELECT RAISE(ABORT, 'windlass: a migration changes the state machine'); END;

CREATE TABLE step (
    -- The order in which a task's steps were begun or recorded.
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    task_id TEXT NOT NULL,
    id TEXT NOT NULL CHECK (length(id) = 36),
    name TEXT NOT NULL,
    type TEXT NOT NULL,
    inputs_hash TEXT NOT NULL,
    occurrence INTEGER NOT NULL,
    inputs TEXT CHECK (inputs IS NULL OR json_valid(inputs)),
    idempotent INTEGER NOT NULL CHECK (idempotent IN (0, 1)),
    status TEXT NOT NULL CHECK (
        status = 'begun' OR status = 'waiting' OR status = 'done' OR status = 'failed'
        OR status = 'in_doubt' OR status = 'allowed' OR status = 'rejected'),
    result TEXT CHECK (result IS NULL OR json_valid(result)),
    error TEXT CHECK (error IS NULL OR json_valid(error)),
    effect TEXT,
    lease_id TEXT,
    attempt INTEGER NOT NULL,
    actor TEXT NOT NULL,
    copied_from TEXT,
    created_at INTEGER NOT NULL,
    ended_at INTEGER,
    expired_at INTEGER,
    CONSTRAINT an_end_has_a_time CHECK (
        (status <> 'done' AND status <> 'failed') OR ended_at IS NOT NULL),
    CONSTRAINT an_effect_is_known CHECK (effect IN ('none', 'unknown')),
    CONSTRAINT only_what_is_done_has_a_result CHECK (result IS NULL OR status = 'done')
) STRICT;
CREATE UNIQUE INDEX step_task ON step (task_id, id);
CREATE UNIQUE INDEX step_intent ON step (id) WHERE NOT idempotent;
CREATE INDEX step_doubt ON step (seq) WHERE status = 'in_doubt';

-- REPLACE would put another step in the place of this one.
CREATE TRIGGER step_is_new BEFORE INSERT ON step
WHEN EXISTS (SELECT 1 FROM step WHERE (task_id = NEW.task_id AND id = NEW.id) OR seq = NEW.seq)
BEGIN SELECT RAISE(ABORT, 'windlass: the step exists; what was done is kept'); END;
CREATE TRIGGER step_is_what_it_is BEFORE UPDATE ON step
WHEN NEW.task_id <> OLD.task_id OR NEW.id <> OLD.id OR NEW.seq <> OLD.seq OR NEW.name <> OLD.name
    OR NEW.type <> OLD.type OR NEW.inputs_hash <> OLD.inputs_hash
    OR NEW.occurrence <> OLD.occurrence OR NEW.idempotent <> OLD.idempotent
    OR NEW.inputs IS NOT OLD.inputs OR NEW.copied_from IS NOT OLD.copied_from
BEGIN SELECT RAISE(ABORT, 'windlass: what a step is never changes'); END;
CREATE TRIGGER step_that_is_done_stays BEFORE UPDATE ON step
WHEN OLD.status = 'done' AND (
    NEW.status <> 'done' OR NEW.result IS NOT NULL OR NEW.expired_at IS NULL
    OR OLD.expired_at IS NOT NULL OR NOT EXISTS (
        SELECT 1 FROM task_state WHERE id = OLD.task_id AND finished_at IS NOT NULL))
BEGIN SELECT RAISE(ABORT, 'windlass: the step is done; its result never changes'); END;
CREATE TRIGGER step_follows_its_machine BEFORE UPDATE ON step
WHEN NEW.status <> OLD.status AND NOT EXISTS (
    SELECT 1 FROM step_transition t
    WHERE t.from_status = OLD.status AND t.to_status = NEW.status)
BEGIN SELECT RAISE(ABORT, 'windlass: the step cannot go there'); END;
CREATE TRIGGER step_is_kept BEFORE DELETE ON step
WHEN NOT EXISTS (SELECT 1 FROM retention_gate) OR NOT EXISTS (
    SELECT 1 FROM task_state st JOIN profile p ON p.profile = st.profile
    WHERE st.id = OLD.task_id AND st.finished_at + p.retention_ms
        <= CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER))
BEGIN
    SELECT RAISE(ABORT, 'windlass: step: only the retention duty removes rows');
END;

-- Up to where in the history the results of finished tasks have been cleared.
CREATE TABLE step_expiry_position (seq INTEGER NOT NULL) STRICT;
INSERT INTO step_expiry_position VALUES (0);
