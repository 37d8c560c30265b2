-- Waits: for what a parked task waits, one row a task. The wait's step holds what came of it; this
-- row is only how the task is found, and it goes when the task is woken.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

CREATE TYPE wait_kind AS ENUM ('time', 'signal', 'task', 'person');

CREATE TABLE wait (
    task_id uuid PRIMARY KEY,
    kind wait_kind NOT NULL,
    step_id uuid NOT NULL,
    -- The lease under which the task parked: the same call again is answered like the first.
    lease_id uuid,
    -- The time it waits for, or when it waits no longer.
    wake_at timestamptz,
    signal text,
    key text,
    child_id uuid,
    created_at timestamptz NOT NULL,
    CONSTRAINT a_time_is_waited_for CHECK (kind <> 'time' OR wake_at IS NOT NULL),
    CONSTRAINT a_signal_has_a_name CHECK ((kind = 'signal') = (signal IS NOT NULL)),
    CONSTRAINT a_task_is_named CHECK ((kind = 'task') = (child_id IS NOT NULL))
);
CREATE INDEX wait_timer ON wait (wake_at) WHERE wake_at IS NOT NULL;
CREATE INDEX wait_signal ON wait (signal, key, created_at) WHERE key IS NOT NULL;
CREATE INDEX wait_child ON wait (child_id) WHERE child_id IS NOT NULL;

-- Signals: told to one task, or to whoever waits with a key. One that came early stays until a
-- wait takes it; each is taken once.
CREATE TABLE signal (
    id uuid PRIMARY KEY,
    name text NOT NULL,
    task_id uuid,
    key text,
    payload jsonb NOT NULL,
    request_digest text NOT NULL,
    sent_by text NOT NULL,
    created_at timestamptz NOT NULL,
    taken_by uuid,
    taken_at timestamptz,
    CONSTRAINT told_to_a_task_or_a_key CHECK ((task_id IS NULL) <> (key IS NULL)),
    CONSTRAINT taken_by_somebody CHECK ((taken_by IS NULL) = (taken_at IS NULL)),
    CONSTRAINT names_are_bounded CHECK (
        octet_length(name) BETWEEN 1 AND 255 AND (key IS NULL OR octet_length(key) <= 255))
);
CREATE INDEX signal_of_task ON signal (task_id, name, created_at, id) WHERE task_id IS NOT NULL;
CREATE INDEX signal_of_key ON signal (key, name, created_at, id)
    WHERE key IS NOT NULL AND taken_by IS NULL;

CREATE FUNCTION windlass_check_signal() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    IF OLD.taken_by IS NOT NULL OR NEW.taken_by IS NULL
        OR (NEW.id, NEW.name, NEW.task_id, NEW.key, NEW.sent_by, NEW.created_at)
            IS DISTINCT FROM
            (OLD.id, OLD.name, OLD.task_id, OLD.key, OLD.sent_by, OLD.created_at)
        OR NEW.payload IS DISTINCT FROM OLD.payload
    THEN
        RAISE EXCEPTION 'windlass: signal % is taken once and never changes', OLD.id
            USING HINT = 'Send another one.';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER signal_is_taken_once BEFORE UPDATE ON signal FOR EACH ROW
    EXECUTE FUNCTION windlass_check_signal();
CREATE TRIGGER signal_is_not_truncated BEFORE TRUNCATE ON signal
    EXECUTE FUNCTION windlass_refuse('what was told is kept');
