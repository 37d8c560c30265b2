-- Messages: a durable inbox for every agent, and the letters that could not be delivered.
--
-- Invariant: what may follow what is the domain's table, and what has ended never changes. Of the
-- messages of one conversing agent (ceo, vp) at most one is in a handler's hands: a unique index
-- says so, and claims take the row of the inbox first, so that they never meet it.
--
-- A message may be written by hand: whatever it leaves out has a default, and handlers look at the
-- table every second.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

CREATE TYPE message_status AS ENUM (
    'pending', 'delivered', 'acknowledged', 'dead_lettered', 'expired');

-- The domain's table, compared with it by a test.
CREATE TABLE message_transition (
    from_status message_status NOT NULL,
    to_status message_status NOT NULL,
    PRIMARY KEY (from_status, to_status)
);
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
CREATE TRIGGER message_transition_is_fixed
    BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON message_transition
    EXECUTE FUNCTION windlass_refuse('a migration changes the state machine');

CREATE TABLE message (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    -- Plain names: a message outlives the agents it speaks of.
    from_agent text NOT NULL DEFAULT ('sql:' || session_user),
    to_agent text NOT NULL,
    type text NOT NULL,
    priority integer NOT NULL DEFAULT 0,
    payload jsonb NOT NULL DEFAULT 'null',
    correlation_id text,
    idempotency_key text,
    request_digest text NOT NULL DEFAULT '',
    -- Whoever asked for it: the credential's principal.
    sent_by text NOT NULL DEFAULT ('sql:' || session_user),
    -- The dead letter that it delivers again.
    redelivery_of uuid,
    status message_status NOT NULL DEFAULT 'pending',
    created_at timestamptz NOT NULL DEFAULT date_trunc('milliseconds', clock_timestamp()),
    -- When it may be handed out: later than now after a failed delivery.
    due_at timestamptz NOT NULL DEFAULT date_trunc('milliseconds', clock_timestamp()),
    -- When it is no longer worth delivering.
    expires_at timestamptz,
    deliveries integer NOT NULL DEFAULT 0,
    -- The last delivery's: kept, so that a word that comes twice is known.
    lease_id uuid,
    lease_expires_at timestamptz,
    handled_by text,
    delivered_at timestamptz,
    -- Whether its agent is in one conversation at a time.
    converses boolean NOT NULL DEFAULT false,
    -- How the last delivery failed.
    last_error text,
    finished_at timestamptz,
    CONSTRAINT names_are_bounded CHECK (
        octet_length(from_agent) BETWEEN 1 AND 255 AND octet_length(to_agent) BETWEEN 1 AND 255
        AND octet_length(type) BETWEEN 1 AND 100 AND octet_length(sent_by) BETWEEN 1 AND 255
        AND (correlation_id IS NULL OR octet_length(correlation_id) BETWEEN 1 AND 255)
        AND (idempotency_key IS NULL OR octet_length(idempotency_key) BETWEEN 1 AND 255)
        AND (handled_by IS NULL OR octet_length(handled_by) BETWEEN 1 AND 255)),
    CONSTRAINT priority_is_bounded CHECK (priority BETWEEN -32768 AND 32767),
    CONSTRAINT deliveries_are_counted CHECK (deliveries BETWEEN 0 AND 5),
    CONSTRAINT held_under_a_lease CHECK (
        (status = 'delivered') = (lease_expires_at IS NOT NULL)
        AND (status <> 'delivered' OR lease_id IS NOT NULL AND handled_by IS NOT NULL
             AND delivered_at IS NOT NULL AND deliveries > 0)),
    CONSTRAINT finished_at_its_end CHECK (
        (status IN ('pending', 'delivered')) = (finished_at IS NULL))
) WITH (fillfactor = 70);
CREATE UNIQUE INDEX message_key ON message (from_agent, idempotency_key)
    WHERE idempotency_key IS NOT NULL;
-- An inbox in the order in which it is drained.
CREATE INDEX message_inbox ON message (to_agent, priority DESC, created_at, id)
    WHERE status = 'pending';
-- One conversation at a time.
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

-- One row an agent that ever got a message. Whoever hands out the messages of a conversing agent
-- holds it meanwhile.
CREATE TABLE inbox (
    agent text PRIMARY KEY,
    opened_at timestamptz NOT NULL
);

-- ---------------------------------------------------------------------------------------------
-- Dead letters: messages that could not be delivered or handled, and what people did about them.

CREATE TABLE dead_letter (
    message_id uuid PRIMARY KEY,
    -- The message as it was.
    original jsonb NOT NULL,
    from_agent text NOT NULL,
    to_agent text NOT NULL,
    type text NOT NULL,
    correlation_id text,
    reason text NOT NULL,
    detail text NOT NULL,
    deliveries integer NOT NULL,
    status text NOT NULL DEFAULT 'pending',
    assignee text,
    entered_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    closed_at timestamptz,
    -- The message that delivered it after all.
    resolved_by_message uuid,
    CONSTRAINT reason_is_known CHECK (reason IN (
        'unknown_agent', 'archived_agent', 'delivery_limit', 'rejected', 'invalid')),
    CONSTRAINT status_is_known CHECK (
        status IN ('pending', 'investigating', 'resolved', 'abandoned')),
    CONSTRAINT somebody_looks CHECK (status = 'pending' OR assignee IS NOT NULL),
    CONSTRAINT names_are_bounded CHECK (
        (assignee IS NULL OR octet_length(assignee) BETWEEN 1 AND 255)
        AND octet_length(detail) <= 65536),
    CONSTRAINT closed_at_its_end CHECK (
        (status IN ('resolved', 'abandoned')) = (closed_at IS NOT NULL)),
    CONSTRAINT only_a_resolution_names_a_message CHECK (
        resolved_by_message IS NULL OR status = 'resolved')
);
CREATE INDEX dead_letter_open ON dead_letter (entered_at, message_id) WHERE closed_at IS NULL;
CREATE INDEX dead_letter_entered ON dead_letter (entered_at, message_id);

CREATE TABLE dead_letter_note (
    id uuid PRIMARY KEY,
    message_id uuid NOT NULL,
    at timestamptz NOT NULL,
    author text NOT NULL,
    event text NOT NULL,
    note text,
    CONSTRAINT names_are_bounded CHECK (
        octet_length(author) BETWEEN 1 AND 255
        AND (note IS NULL OR octet_length(note) BETWEEN 1 AND 65536)),
    CONSTRAINT event_is_known CHECK (
        event IN ('assign', 'investigate', 'note', 'resolve', 'abandon')),
    CONSTRAINT a_note_says_something CHECK (event <> 'note' OR note IS NOT NULL)
);
CREATE INDEX dead_letter_note_message ON dead_letter_note (message_id, at, id);

-- ---------------------------------------------------------------------------------------------
-- What the database does by itself, and what it refuses.

CREATE FUNCTION windlass_begin_message() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    IF NEW.status = 'dead_lettered' THEN
        IF NOT EXISTS (SELECT 1 FROM dead_letter WHERE message_id = NEW.id) THEN
            RAISE EXCEPTION 'windlass: message % has no dead letter', NEW.id
                USING HINT = 'A message begins pending.';
        END IF;
    ELSIF NEW.status <> 'pending' OR NEW.deliveries <> 0 THEN
        RAISE EXCEPTION 'windlass: a message begins pending, and nobody has had it';
    ELSE
        INSERT INTO inbox (agent, opened_at) VALUES (NEW.to_agent, NEW.created_at)
        ON CONFLICT (agent) DO NOTHING;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER message_opens_its_inbox BEFORE INSERT ON message FOR EACH ROW
    EXECUTE FUNCTION windlass_begin_message();

CREATE FUNCTION windlass_check_message() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    IF OLD.finished_at IS NOT NULL THEN
        RAISE EXCEPTION 'windlass: message % is %; it never changes', OLD.id, OLD.status
            USING HINT = 'A dead letter is delivered again as a new message.';
    END IF;
    IF (NEW.id, NEW.from_agent, NEW.to_agent, NEW.type, NEW.priority, NEW.correlation_id,
            NEW.idempotency_key, NEW.request_digest, NEW.sent_by, NEW.redelivery_of,
            NEW.created_at, NEW.expires_at)
        IS DISTINCT FROM (OLD.id, OLD.from_agent, OLD.to_agent, OLD.type, OLD.priority,
            OLD.correlation_id, OLD.idempotency_key, OLD.request_digest, OLD.sent_by,
            OLD.redelivery_of, OLD.created_at, OLD.expires_at)
        OR NEW.payload IS DISTINCT FROM OLD.payload OR NEW.deliveries < OLD.deliveries
    THEN
        RAISE EXCEPTION 'windlass: what message % says never changes', OLD.id;
    END IF;
    IF NEW.status <> OLD.status AND NOT EXISTS (
        SELECT 1 FROM message_transition t
        WHERE t.from_status = OLD.status AND t.to_status = NEW.status)
    THEN
        RAISE EXCEPTION 'windlass: message % cannot go from % to %', OLD.id, OLD.status, NEW.status;
    END IF;
    IF NEW.status = 'dead_lettered' AND NOT EXISTS (
        SELECT 1 FROM dead_letter WHERE message_id = NEW.id)
    THEN
        RAISE EXCEPTION 'windlass: message % has no dead letter', NEW.id;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER message_follows_the_machine BEFORE UPDATE ON message FOR EACH ROW
    EXECUTE FUNCTION windlass_check_message();
CREATE TRIGGER message_is_kept BEFORE DELETE OR TRUNCATE ON message
    EXECUTE FUNCTION windlass_refuse('what was said is kept');
CREATE TRIGGER inbox_is_kept BEFORE UPDATE OR DELETE OR TRUNCATE ON inbox
    EXECUTE FUNCTION windlass_refuse('an inbox stays');

CREATE FUNCTION windlass_check_dead_letter() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    IF OLD.closed_at IS NOT NULL THEN
        RAISE EXCEPTION 'windlass: dead letter % is %; it never changes', OLD.message_id,
            OLD.status USING HINT = 'Append a note.';
    END IF;
    IF NEW.status <> OLD.status AND (OLD.status, NEW.status) NOT IN (
        ('pending', 'investigating'), ('investigating', 'resolved'),
        ('investigating', 'abandoned'))
    THEN
        RAISE EXCEPTION 'windlass: a dead letter that is % cannot become %', OLD.status, NEW.status
            USING HINT = 'It goes from pending to investigating to resolved or abandoned.';
    END IF;
    IF (NEW.message_id, NEW.from_agent, NEW.to_agent, NEW.type, NEW.correlation_id, NEW.reason,
            NEW.detail, NEW.deliveries, NEW.entered_at)
        IS DISTINCT FROM (OLD.message_id, OLD.from_agent, OLD.to_agent, OLD.type,
            OLD.correlation_id, OLD.reason, OLD.detail, OLD.deliveries, OLD.entered_at)
        OR NEW.original IS DISTINCT FROM OLD.original
    THEN
        RAISE EXCEPTION 'windlass: what happened to message % never changes', OLD.message_id;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER dead_letter_follows_its_workflow BEFORE UPDATE ON dead_letter FOR EACH ROW
    EXECUTE FUNCTION windlass_check_dead_letter();
CREATE TRIGGER dead_letter_is_kept BEFORE DELETE OR TRUNCATE ON dead_letter
    EXECUTE FUNCTION windlass_refuse('a dead letter is closed, never removed');
CREATE TRIGGER dead_letter_note_is_append_only BEFORE UPDATE OR DELETE OR TRUNCATE
    ON dead_letter_note
    EXECUTE FUNCTION windlass_refuse('notes are appended');
