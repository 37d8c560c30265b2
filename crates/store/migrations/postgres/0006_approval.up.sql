-- Approvals as people see and answer them: what would be done, who said what, and tokens for those
-- who have no key.
--
-- Invariant: what is approved (action, arguments, digest) never changes, voices are append-only,
-- and of a token only its digest is here. A gate's approval opens and closes with its task
-- (0001_task); a request to replay belongs to a finished task, and closes by itself.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

ALTER TABLE approval
    ADD COLUMN kind text NOT NULL DEFAULT 'gate',
    ADD COLUMN action text NOT NULL DEFAULT '',
    -- Text, not jsonb: the digest is of these very bytes.
    ADD COLUMN arguments text NOT NULL DEFAULT 'null',
    ADD COLUMN digest text NOT NULL DEFAULT '',
    ADD COLUMN occurrence bigint NOT NULL DEFAULT 0,
    ADD COLUMN required bigint NOT NULL DEFAULT 1,
    ADD COLUMN requested_by text NOT NULL DEFAULT '',
    -- What is carried out when it is approved, if no task waits for it.
    ADD COLUMN request jsonb,
    ADD CONSTRAINT kind_is_known CHECK (kind IN ('gate', 'replay')),
    ADD CONSTRAINT a_replay_has_a_request CHECK ((kind = 'replay') = (request IS NOT NULL)),
    ADD CONSTRAINT what_is_asked_is_bounded CHECK (
        octet_length(action) <= 255 AND octet_length(arguments) <= 65536
        AND octet_length(digest) <= 64 AND occurrence BETWEEN 0 AND 1000000
        AND required BETWEEN 1 AND 100 AND octet_length(requested_by) <= 255);

DROP INDEX approval_open;
CREATE UNIQUE INDEX approval_open ON approval (task_id) WHERE status = 'open' AND kind = 'gate';
CREATE INDEX approval_recent ON approval (created_at, id);
CREATE INDEX approval_status ON approval (status, created_at, id);
-- What need not be asked again.
CREATE INDEX approval_granted ON approval (task_id, gate, digest, occurrence)
    WHERE status = 'approved' AND kind = 'gate';

CREATE TABLE approval_vote (
    approval_id uuid NOT NULL,
    task_id uuid NOT NULL,
    actor text NOT NULL,
    choice text NOT NULL,
    comment text,
    -- By which right: that of a key, or of a token.
    via text NOT NULL,
    vote_id uuid NOT NULL,
    at timestamptz NOT NULL,
    PRIMARY KEY (approval_id, actor),
    CONSTRAINT choice_is_known CHECK (choice IN ('approve', 'deny')),
    CONSTRAINT via_is_known CHECK (via IN ('key', 'token')),
    CONSTRAINT voice_is_bounded CHECK (
        octet_length(actor) BETWEEN 1 AND 255 AND octet_length(comment) <= 4000)
);
CREATE INDEX approval_vote_task ON approval_vote (task_id);

CREATE TABLE approval_token (
    id uuid PRIMARY KEY,
    approval_id uuid NOT NULL,
    task_id uuid NOT NULL,
    approver text NOT NULL,
    -- SHA-256 in hex; the token itself is nowhere.
    digest text NOT NULL,
    issued_by text NOT NULL,
    issued_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    spent_at timestamptz,
    revoked_at timestamptz,
    CONSTRAINT token_is_bounded CHECK (
        octet_length(approver) BETWEEN 1 AND 255 AND octet_length(digest) = 64
        AND octet_length(issued_by) BETWEEN 1 AND 255)
);
-- Each approver has one that is good; a newer one takes its place.
CREATE UNIQUE INDEX approval_token_good ON approval_token (approval_id, approver)
    WHERE spent_at IS NULL AND revoked_at IS NULL;
CREATE INDEX approval_token_task ON approval_token (task_id);

CREATE INDEX audit_event ON audit (event, seq);

-- ---------------------------------------------------------------------------------------------
-- Refusals.

CREATE OR REPLACE FUNCTION windlass_check_approval_task() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    IF NEW.status <> 'open' THEN
        RAISE EXCEPTION 'windlass: an approval begins open';
    END IF;
    IF NEW.kind = 'replay' THEN
        PERFORM 1 FROM task_state WHERE id = NEW.task_id AND finished_at IS NOT NULL;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'windlass: task % is not finished, so nobody can ask to replay it',
                NEW.task_id;
        END IF;
        RETURN NEW;
    END IF;
    -- Locked, so that the task cannot end while it asks.
    PERFORM 1 FROM task_state WHERE id = NEW.task_id AND status = 'running' FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'windlass: task % is not running, so it cannot ask for an approval',
            NEW.task_id;
    END IF;
    RETURN NEW;
END $$;

CREATE OR REPLACE FUNCTION windlass_check_approval_awaited() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    IF NEW.kind = 'gate'
        AND EXISTS (SELECT 1 FROM approval WHERE id = NEW.id AND status = 'open') AND NOT EXISTS (
        SELECT 1 FROM task_state WHERE id = NEW.task_id AND approval_id = NEW.id)
    THEN
        RAISE EXCEPTION 'windlass: approval % is open, but task % does not wait for it',
            NEW.id, NEW.task_id
            USING HINT = 'Move the task in the same transaction; its approval follows.';
    END IF;
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION windlass_check_approval_closing() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    IF pg_trigger_depth() < 2 AND EXISTS (
        SELECT 1 FROM task_state WHERE id = NEW.task_id AND approval_id = NEW.id)
    THEN
        RAISE EXCEPTION 'windlass: task % waits for approval %', NEW.task_id, NEW.id
            USING HINT = 'Move the task; its approval follows.';
    END IF;
    IF NEW.kind = 'replay' AND NEW.status = 'approved' AND NEW.required > (
        SELECT count(*) FROM approval_vote WHERE approval_id = NEW.id AND choice = 'approve')
    THEN
        RAISE EXCEPTION 'windlass: approval % needs the voices of % people', NEW.id, NEW.required
            USING HINT = 'Use the API: what was asked is carried out with the approval.';
    END IF;
    RETURN NEW;
END $$;

DROP TRIGGER approval_is_answered_once ON approval;
CREATE TRIGGER approval_is_answered_once BEFORE UPDATE ON approval FOR EACH ROW
    WHEN (NEW.id <> OLD.id OR NEW.task_id <> OLD.task_id OR NEW.gate <> OLD.gate
          OR NEW.created_at <> OLD.created_at OR NEW.kind <> OLD.kind
          OR NEW.action <> OLD.action OR NEW.arguments <> OLD.arguments
          OR NEW.digest <> OLD.digest OR NEW.occurrence <> OLD.occurrence
          OR NEW.required <> OLD.required OR NEW.requested_by <> OLD.requested_by
          OR NEW.request IS DISTINCT FROM OLD.request
          OR OLD.status <> 'open' AND (NEW.status <> OLD.status
              OR NEW.decided_at IS DISTINCT FROM OLD.decided_at
              OR NEW.expires_at IS DISTINCT FROM OLD.expires_at))
    EXECUTE FUNCTION windlass_refuse('an answer is written once, and what was asked stays');

-- A voice counts for an open question of its task, and nobody approves what they asked.
CREATE FUNCTION windlass_check_vote() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
DECLARE
    asked approval%ROWTYPE;
BEGIN
    SELECT * INTO asked FROM approval WHERE id = NEW.approval_id FOR UPDATE;
    IF asked.id IS NULL OR asked.task_id <> NEW.task_id OR asked.status <> 'open' THEN
        RAISE EXCEPTION 'windlass: approval % is not open, so no voice counts', NEW.approval_id;
    END IF;
    IF NEW.choice = 'approve' AND NEW.actor = asked.requested_by THEN
        RAISE EXCEPTION 'windlass: % asked for approval %, so somebody else must approve it',
            NEW.actor, NEW.approval_id;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER approval_vote_counts BEFORE INSERT ON approval_vote FOR EACH ROW
    EXECUTE FUNCTION windlass_check_vote();
CREATE TRIGGER approval_vote_is_append_only BEFORE UPDATE OR TRUNCATE ON approval_vote
    EXECUTE FUNCTION windlass_refuse('a voice never changes');
CREATE TRIGGER approval_vote_is_kept BEFORE DELETE ON approval_vote
    EXECUTE FUNCTION windlass_refuse_delete();
CREATE TRIGGER approval_vote_is_kept_while_needed BEFORE DELETE ON approval_vote FOR EACH ROW
    EXECUTE FUNCTION windlass_check_retention('task_id');

CREATE TRIGGER approval_token_is_fixed BEFORE UPDATE ON approval_token FOR EACH ROW
    WHEN (NEW.id <> OLD.id OR NEW.approval_id <> OLD.approval_id OR NEW.task_id <> OLD.task_id
          OR NEW.approver <> OLD.approver OR NEW.digest <> OLD.digest
          OR NEW.issued_by <> OLD.issued_by OR NEW.issued_at <> OLD.issued_at
          OR NEW.expires_at > OLD.expires_at
          OR NEW.spent_at IS DISTINCT FROM OLD.spent_at AND OLD.spent_at IS NOT NULL
          OR NEW.revoked_at IS DISTINCT FROM OLD.revoked_at AND OLD.revoked_at IS NOT NULL)
    EXECUTE FUNCTION windlass_refuse('a token is used or revoked once, and never changes');
CREATE TRIGGER approval_token_is_not_truncated BEFORE TRUNCATE ON approval_token
    EXECUTE FUNCTION windlass_refuse('who had a right to decide is kept');
CREATE TRIGGER approval_token_is_kept BEFORE DELETE ON approval_token
    EXECUTE FUNCTION windlass_refuse_delete();
CREATE TRIGGER approval_token_is_kept_while_needed BEFORE DELETE ON approval_token FOR EACH ROW
    EXECUTE FUNCTION windlass_check_retention('task_id');
