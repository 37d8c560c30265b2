-- Approvals as people see and answer them; migrations/postgres/0006_approval.up.sql says more.

ALTER TABLE approval ADD COLUMN kind TEXT NOT NULL DEFAULT 'gate'
    CHECK (kind = 'gate' OR kind = 'replay');
ALTER TABLE approval ADD COLUMN action TEXT NOT NULL DEFAULT ''
    CHECK (length(CAST(action AS BLOB)) <= 255);
ALTER TABLE approval ADD COLUMN arguments TEXT NOT NULL DEFAULT 'null'
    CHECK (length(CAST(arguments AS BLOB)) <= 65536);
ALTER TABLE approval ADD COLUMN digest TEXT NOT NULL DEFAULT '' CHECK (length(digest) <= 64);
ALTER TABLE approval ADD COLUMN occurrence INTEGER NOT NULL DEFAULT 0
    CHECK (occurrence BETWEEN 0 AND 1000000);
ALTER TABLE approval ADD COLUMN required INTEGER NOT NULL DEFAULT 1
    CHECK (required BETWEEN 1 AND 100);
ALTER TABLE approval ADD COLUMN requested_by TEXT NOT NULL DEFAULT ''
    CHECK (length(CAST(requested_by AS BLOB)) <= 255);
ALTER TABLE approval ADD COLUMN request TEXT
    CHECK ((kind = 'replay') = (request IS NOT NULL) AND (request IS NULL OR json_valid(request)));

DROP INDEX approval_open;
CREATE UNIQUE INDEX approval_open ON approval (task_id) WHERE status = 'open' AND kind = 'gate';
CREATE INDEX approval_recent ON approval (created_at, id);
CREATE INDEX approval_status ON approval (status, created_at, id);
-- What need not be asked again.
CREATE INDEX approval_granted ON approval (task_id, gate, digest, occurrence)
    WHERE status = 'approved' AND kind = 'gate';

CREATE TABLE approval_vote (
    approval_id TEXT NOT NULL,
    task_id TEXT NOT NULL,
    actor TEXT NOT NULL,
    choice TEXT NOT NULL,
    comment TEXT,
    via TEXT NOT NULL,
    vote_id TEXT NOT NULL,
    at INTEGER NOT NULL,
    PRIMARY KEY (approval_id, actor),
    CONSTRAINT choice_is_known CHECK (choice = 'approve' OR choice = 'deny'),
    CONSTRAINT via_is_known CHECK (via = 'key' OR via = 'token'),
    CONSTRAINT voice_is_bounded CHECK (
        length(CAST(actor AS BLOB)) BETWEEN 1 AND 255
        AND (comment IS NULL OR length(CAST(comment AS BLOB)) <= 4000))
) STRICT, WITHOUT ROWID;
CREATE INDEX approval_vote_task ON approval_vote (task_id);

CREATE TABLE approval_token (
    id TEXT PRIMARY KEY NOT NULL CHECK (length(id) = 36),
    approval_id TEXT NOT NULL,
    task_id TEXT NOT NULL,
    approver TEXT NOT NULL,
    digest TEXT NOT NULL,
    issued_by TEXT NOT NULL,
    issued_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    spent_at INTEGER,
    revoked_at INTEGER,
    CONSTRAINT token_is_bounded CHECK (
        length(CAST(approver AS BLOB)) BETWEEN 1 AND 255 AND length(digest) = 64
        AND length(CAST(issued_by AS BLOB)) BETWEEN 1 AND 255)
) STRICT, WITHOUT ROWID;
-- Each approver has one that is good; a newer one takes its place.
CREATE UNIQUE INDEX approval_token_good ON approval_token (approval_id, approver)
    WHERE spent_at IS NULL AND revoked_at IS NULL;
CREATE INDEX approval_token_task ON approval_token (task_id);

CREATE INDEX audit_event ON audit (event, seq);

-- ---------------------------------------------------------------------------------------------
-- Refusals.

DROP TRIGGER approval_is_awaited;
CREATE TRIGGER approval_is_awaited BEFORE INSERT ON approval
WHEN NEW.rowid > 0 OR NEW.status <> 'open'
    OR NEW.kind = 'gate' AND NOT EXISTS (
        SELECT 1 FROM task_state WHERE id = NEW.task_id AND approval_id = NEW.id)
    OR NEW.kind = 'replay' AND NOT EXISTS (
        SELECT 1 FROM task_state WHERE id = NEW.task_id AND finished_at IS NOT NULL)
BEGIN
    SELECT RAISE(ABORT, 'windlass: approval: it begins open, when its task begins to wait for it');
END;
DROP TRIGGER approval_is_not_replaced;
CREATE TRIGGER approval_is_not_replaced BEFORE INSERT ON approval
WHEN EXISTS (SELECT 1 FROM approval WHERE id = NEW.id)
    OR NEW.kind = 'gate' AND EXISTS (
        SELECT 1 FROM approval WHERE task_id = NEW.task_id AND status = 'open' AND kind = 'gate')
BEGIN
    SELECT RAISE(ABORT, 'windlass: approval: the id exists, or the task has an open one');
END;
DROP TRIGGER approval_is_answered_once;
CREATE TRIGGER approval_is_answered_once BEFORE UPDATE ON approval
WHEN NEW.rowid <> OLD.rowid OR NEW.id <> OLD.id OR NEW.task_id <> OLD.task_id
    OR NEW.gate <> OLD.gate OR NEW.created_at <> OLD.created_at OR NEW.kind <> OLD.kind
    OR NEW.action <> OLD.action OR NEW.arguments <> OLD.arguments OR NEW.digest <> OLD.digest
    OR NEW.occurrence <> OLD.occurrence OR NEW.required <> OLD.required
    OR NEW.requested_by <> OLD.requested_by OR NEW.request IS NOT OLD.request
    OR OLD.status <> 'open'
        AND (NEW.status <> OLD.status OR NEW.decided_at IS NOT OLD.decided_at
             OR NEW.expires_at IS NOT OLD.expires_at)
BEGIN
    SELECT RAISE(ABORT, 'windlass: approval: an answer is written once, and what was asked stays');
END;
DROP TRIGGER approval_closes_with_its_task;
CREATE TRIGGER approval_closes_with_its_task BEFORE UPDATE ON approval
WHEN OLD.status = 'open' AND NEW.status <> 'open'
BEGIN
    SELECT RAISE(ABORT, 'windlass: approval: its task waits for it; move the task')
    WHERE EXISTS (
        SELECT 1 FROM task_state WHERE id = NEW.task_id AND approval_id = NEW.id);
    SELECT RAISE(ABORT, 'windlass: approval: it needs the voices of more people')
    WHERE NEW.kind = 'replay' AND NEW.status = 'approved' AND NEW.required > (
        SELECT count(*) FROM approval_vote WHERE approval_id = NEW.id AND choice = 'approve');
END;

CREATE TRIGGER approval_vote_counts BEFORE INSERT ON approval_vote
BEGIN
    SELECT RAISE(ABORT, 'windlass: approval_vote: a voice never changes')
    WHERE EXISTS (
        SELECT 1 FROM approval_vote WHERE approval_id = NEW.approval_id AND actor = NEW.actor);
    SELECT RAISE(ABORT, 'windlass: approval_vote: the approval is not open, so no voice counts')
    WHERE NOT EXISTS (
        SELECT 1 FROM approval
        WHERE id = NEW.approval_id AND task_id = NEW.task_id AND status = 'open');
    SELECT RAISE(ABORT, 'windlass: approval_vote: somebody else must approve it')
    WHERE NEW.choice = 'approve' AND EXISTS (
        SELECT 1 FROM approval WHERE id = NEW.approval_id AND requested_by = NEW.actor);
END;
CREATE TRIGGER approval_vote_is_append_only BEFORE UPDATE ON approval_vote
BEGIN
    SELECT RAISE(ABORT, 'windlass: approval_vote: a voice never changes');
END;
CREATE TRIGGER approval_vote_is_kept BEFORE DELETE ON approval_vote
WHEN NOT EXISTS (SELECT 1 FROM retention_gate) OR NOT EXISTS (
    SELECT 1 FROM task_state st JOIN profile p ON p.profile = st.profile
    WHERE st.id = OLD.task_id AND st.finished_at + p.retention_ms
        <= CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER))
BEGIN
    SELECT RAISE(ABORT, 'windlass: approval_vote: only the retention duty removes rows');
END;

CREATE TRIGGER approval_token_is_new BEFORE INSERT ON approval_token
WHEN EXISTS (SELECT 1 FROM approval_token WHERE id = NEW.id)
    OR NEW.spent_at IS NULL AND NEW.revoked_at IS NULL AND EXISTS (
        SELECT 1 FROM approval_token
        WHERE approval_id = NEW.approval_id AND approver = NEW.approver
          AND spent_at IS NULL AND revoked_at IS NULL)
BEGIN
    SELECT RAISE(ABORT, 'windlass: approval_token: revoke the token before it first');
END;
CREATE TRIGGER approval_token_is_fixed BEFORE UPDATE ON approval_token
WHEN NEW.id <> OLD.id OR NEW.approval_id <> OLD.approval_id OR NEW.task_id <> OLD.task_id
    OR NEW.approver <> OLD.approver OR NEW.digest <> OLD.digest
    OR NEW.issued_by <> OLD.issued_by OR NEW.issued_at <> OLD.issued_at
    OR NEW.expires_at > OLD.expires_at
    OR NEW.spent_at IS NOT OLD.spent_at AND OLD.spent_at IS NOT NULL
    OR NEW.revoked_at IS NOT OLD.revoked_at AND OLD.revoked_at IS NOT NULL
BEGIN
    SELECT RAISE(ABORT, 'windlass: approval_token: it is used or revoked once, and never changes');
END;
CREATE TRIGGER approval_token_is_kept BEFORE DELETE ON approval_token
WHEN NOT EXISTS (SELECT 1 FROM retention_gate) OR NOT EXISTS (
    SELECT 1 FROM task_state st JOIN profile p ON p.profile = st.profile
    WHERE st.id = OLD.task_id AND st.finished_at + p.retention_ms
        <= CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER))
BEGIN
    SELECT RAISE(ABORT, 'windlass: approval_token: only the retention duty removes rows');
END;
