DROP VIEW task;
DROP TRIGGER task_state_guard_update;
ALTER TABLE task_state DROP COLUMN usage;
CREATE TRIGGER task_state_guard_update BEFORE UPDATE ON task_state
WHEN NEW.change_id = OLD.change_id OR NEW.from_status IS NOT OLD.status
    OR NEW.id <> OLD.id OR NEW.profile <> OLD.profile OR NEW.queue <> OLD.queue
    OR NEW.created_at <> OLD.created_at OR NEW.max_retries <> OLD.max_retries
    OR NEW.status = 'waiting_for_approval' OR NEW.updated_at < OLD.updated_at
    OR NEW.status = OLD.status AND (NEW.lease_id <> OLD.lease_id OR NEW.attempt <> OLD.attempt)
BEGIN
    SELECT RAISE(ABORT, 'windlass: task_state: what was submitted never changes')
    WHERE NEW.id <> OLD.id OR NEW.profile <> OLD.profile OR NEW.queue <> OLD.queue
        OR NEW.created_at <> OLD.created_at OR NEW.max_retries <> OLD.max_retries;
    SELECT RAISE(ABORT, 'windlass: task_state: its open approval must be its own, and new')
    WHERE NEW.status = 'waiting_for_approval'
        AND (NEW.status = OLD.status AND NEW.approval_id IS NOT OLD.approval_id
             OR NEW.status <> OLD.status
                 AND EXISTS (SELECT 1 FROM approval WHERE id = NEW.approval_id));
    SELECT RAISE(ABORT, 'windlass: task_state: lease and attempt change only with the status')
    WHERE NEW.status = OLD.status AND (NEW.lease_id <> OLD.lease_id OR NEW.attempt <> OLD.attempt);
    SELECT RAISE(ABORT, 'windlass: task_state: a finished task never changes')
    WHERE OLD.finished_at IS NOT NULL;
    SELECT RAISE(ABORT, 'windlass: task_state: it was changed later than that')
    WHERE NEW.updated_at < OLD.updated_at
      AND NOT (NEW.change_id = OLD.change_id OR NEW.from_status IS NOT OLD.status);
    SELECT RAISE(ABORT, 'windlass: task_state: the JSON is too deep, or no 64-bit float holds it')
    WHERE EXISTS (
        SELECT 1 FROM json_tree(json_array(json(NEW.result), json(NEW.error))) AS j
        WHERE (j.type IN ('integer', 'real') AND abs(j.atom) = 9e999)
           OR (j.type = 'integer' AND typeof(j.atom) = 'real')
           OR (j.type IN ('array', 'object') AND 65
               <= length(j.fullkey) - length(replace(replace(j.fullkey, '.', ''), '[', ''))))
        OR NEW.result GLOB '*\u[dD][89abAB]*' OR NEW.result GLOB '*\u0000*'
        OR NEW.error GLOB '*\u[dD][89abAB]*' OR NEW.error GLOB '*\u0000*';
    SELECT RAISE(ABORT, 'windlass: task_state: an id is 36 characters, lower case, with hyphens')
    WHERE (NEW.lease_id NOT LIKE '________-____-____-____-____________'
        OR replace(NEW.lease_id, '-', '') GLOB '*[^0-9a-f]*'
        OR length(replace(NEW.lease_id, '-', '')) <> 32)
        OR (NEW.claim_id NOT LIKE '________-____-____-____-____________'
        OR replace(NEW.claim_id, '-', '') GLOB '*[^0-9a-f]*'
        OR length(replace(NEW.claim_id, '-', '')) <> 32)
        OR (NEW.approval_id NOT LIKE '________-____-____-____-____________'
        OR replace(NEW.approval_id, '-', '') GLOB '*[^0-9a-f]*'
        OR length(replace(NEW.approval_id, '-', '')) <> 32);
    SELECT RAISE(ABORT, 'windlass: task_state: a time must be from the year 1970 to 9999')
    FROM json_each(json_array(
        NEW.run_at, NEW.deadline_at, NEW.lease_expires_at, NEW.claimed_at, NEW.last_heartbeat_at,
        NEW.stream_started_at, NEW.started_at))
    WHERE value NOT BETWEEN 0 AND 253402300799999;
    SELECT RAISE(ABORT, 'windlass: task_state: claimed_by takes more than 255 bytes')
    WHERE length(CAST(NEW.claimed_by AS BLOB)) > 255;
    SELECT RAISE(ABORT, 'windlass: task_state: the machine has no such transition')
    WHERE (NEW.change_id = OLD.change_id OR NEW.from_status IS NOT OLD.status)
      AND NEW.status <> OLD.status AND NOT EXISTS (
        SELECT 1 FROM transition t
        WHERE t.profile = OLD.profile AND t.from_status = OLD.status
          AND t.to_status = NEW.status);
    UPDATE task_state SET
        id = NEW.id,
        profile = NEW.profile,
        queue = NEW.queue,
        status = NEW.status,
        from_status = OLD.status,
        event = CASE WHEN NEW.status = OLD.status THEN OLD.event ELSE (
            SELECT t.event FROM transition t
            WHERE t.profile = OLD.profile AND t.from_status = OLD.status
              AND t.to_status = NEW.status
            ORDER BY t.rank LIMIT 1) END,
        change_id = lower(hex(randomblob(16))),
        actor = 'sql:sqlite',
        reason = NULL,
        change_lease_id = coalesce(OLD.lease_id, NEW.lease_id),
        -- Every failure is kept, this one too.
        metadata = CASE
            WHEN NEW.status <> OLD.status AND NEW.error IS NOT NULL
                    AND (NEW.status = 'failed' OR NEW.status = 'stuck' OR NEW.status = 'poisoned'
                         OR NEW.error IS NOT OLD.error)
                THEN json_patch(
                    json_object('error', json(NEW.error), 'attempt', NEW.attempt,
                                'session', OLD.claimed_by),
                    json_object('approval', OLD.approval_id))
            WHEN NEW.status <> OLD.status AND OLD.approval_id IS NOT NULL
                THEN json_object('approval', OLD.approval_id) END,
        -- Whoever postpones a task need not know the index it stands in.
        ready = NEW.ready AND coalesce(
            NEW.run_at <= CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER), TRUE),
        order_key = NEW.order_key,
        run_at = NEW.run_at,
        deadline_at = NEW.deadline_at,
        attempt = NEW.attempt,
        retry_count = NEW.retry_count,
        max_retries = NEW.max_retries,
        release_count = NEW.release_count,
        lease_id = NEW.lease_id,
        lease_expires_at = NEW.lease_expires_at,
        claim_id = NEW.claim_id,
        claimed_by = NEW.claimed_by,
        claimed_at = NEW.claimed_at,
        last_heartbeat_at = NEW.last_heartbeat_at,
        stream_started_at = NEW.stream_started_at,
        approval_id = NEW.approval_id,
        result = NEW.result,
        error = NEW.error,
        created_at = NEW.created_at,
        started_at = NEW.started_at,
        entered_at = CASE WHEN NEW.status = OLD.status THEN OLD.entered_at
            ELSE max(CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER),
                     OLD.updated_at) END,
        updated_at = max(CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER),
                         OLD.updated_at)
    WHERE id = OLD.id AND (NEW.change_id = OLD.change_id OR NEW.from_status IS NOT OLD.status);
    SELECT RAISE(IGNORE)
    WHERE (NEW.change_id = OLD.change_id OR NEW.from_status IS NOT OLD.status);
END;
CREATE VIEW task AS
SELECT s.id,
       CASE s.profile WHEN 'ledger' THEN 'delegation' ELSE s.profile END AS kind,
       CASE s.profile WHEN 'ledger' THEN 'ledger' ELSE 'executed' END AS mode,
       s.name, s.queue, st.status, s.payload, st.result, st.error,
       p.checkpoint, p.progress, s.priority, s.tags, s.agent, s.venture, s.portfolio, s.stage,
       s.owner, s.caller, s.callee, s.pool, s.llm, s.model, s.tier, s.parent_id, s.replay_of,
       (SELECT count(*) FROM task_spec r WHERE r.replay_of = s.id) AS replay_count,
       s.correlation_id, s.idempotency_key, st.attempt, st.retry_count, st.max_retries,
       st.release_count,
       strftime('%Y-%m-%dT%H:%M:%fZ', st.run_at / 1000.0, 'unixepoch') AS run_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', st.deadline_at / 1000.0, 'unixepoch') AS deadline_at,
       st.claimed_by,
       strftime('%Y-%m-%dT%H:%M:%fZ', st.claimed_at / 1000.0, 'unixepoch') AS claimed_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', st.lease_expires_at / 1000.0, 'unixepoch')
           AS lease_expires_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', st.last_heartbeat_at / 1000.0, 'unixepoch')
           AS last_heartbeat_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', st.stream_started_at / 1000.0, 'unixepoch')
           AS stream_started_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', s.created_at / 1000.0, 'unixepoch') AS created_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', st.started_at / 1000.0, 'unixepoch') AS started_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', st.updated_at / 1000.0, 'unixepoch') AS updated_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', st.finished_at / 1000.0, 'unixepoch') AS finished_at
FROM task_spec s
JOIN task_state st ON st.id = s.id
LEFT JOIN task_progress p ON p.task_id = s.id;

CREATE TRIGGER task_is_read_only_i INSTEAD OF INSERT ON task BEGIN
    SELECT RAISE(ABORT, 'windlass: task is a read-only view; use the API or task_state');
END;
CREATE TRIGGER task_is_read_only_u INSTEAD OF UPDATE ON task BEGIN
    SELECT RAISE(ABORT, 'windlass: task is a read-only view; use the API or task_state');
END;
CREATE TRIGGER task_is_read_only_d INSTEAD OF DELETE ON task BEGIN
    SELECT RAISE(ABORT, 'windlass: task is a read-only view; use the API or task_state');
END;
