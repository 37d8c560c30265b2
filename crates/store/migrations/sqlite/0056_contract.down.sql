-- Back to what was refused before.
DROP TRIGGER agent_can_be_read;
DROP TRIGGER agent_stays_readable;
DROP VIEW agent_by_hand;

DROP TRIGGER task_spec_can_be_read;
CREATE TRIGGER task_spec_can_be_read BEFORE INSERT ON task_spec BEGIN
    SELECT RAISE(ABORT, 'windlass: task_spec: an id is 36 characters, lower case, with hyphens')
    WHERE (NEW.id NOT LIKE '________-____-____-____-____________'
        OR replace(NEW.id, '-', '') GLOB '*[^0-9a-f]*'
        OR length(replace(NEW.id, '-', '')) <> 32)
        OR (NEW.parent_id NOT LIKE '________-____-____-____-____________'
        OR replace(NEW.parent_id, '-', '') GLOB '*[^0-9a-f]*'
        OR length(replace(NEW.parent_id, '-', '')) <> 32)
        OR (NEW.replay_of NOT LIKE '________-____-____-____-____________'
        OR replace(NEW.replay_of, '-', '') GLOB '*[^0-9a-f]*'
        OR length(replace(NEW.replay_of, '-', '')) <> 32);
    SELECT RAISE(ABORT, 'windlass: task_spec: the JSON is too deep, or no 64-bit float holds it')
    WHERE EXISTS (
        SELECT 1 FROM json_tree(NEW.payload) AS j
        WHERE (j.type IN ('integer', 'real') AND abs(j.atom) = 9e999)
           OR (j.type = 'integer' AND typeof(j.atom) = 'real')
           OR (j.type IN ('array', 'object') AND 64
               <= length(j.fullkey) - length(replace(replace(j.fullkey, '.', ''), '[', ''))))
        OR NEW.payload GLOB '*\u[dD][89abAB]*' OR NEW.payload GLOB '*\u0000*';
    SELECT RAISE(ABORT, 'windlass: task_spec: a name is empty, not trimmed, or not plain text')
    FROM (SELECT value AS name FROM json_each(json_array(
            NEW.queue, NEW.name, NEW.agent, NEW.venture, NEW.portfolio, NEW.stage, NEW.owner,
            NEW.caller, NEW.callee, NEW.pool, NEW.llm, NEW.model, NEW.tier, NEW.correlation_id,
            NEW.idempotency_key))
        UNION ALL SELECT key FROM json_each(NEW.tags)
        UNION ALL SELECT '.' || value || '.' FROM json_each(NEW.tags))
    WHERE name = '' OR trim(name, ' ' || char(160, 5760, 8239, 8287, 12288)) <> name
        OR name GLOB '*[' || char(1) || '-' || char(31) || char(127) || '-' || char(159)
            || char(1564, 8206, 8207, 8232) || '-' || char(8238, 8294) || '-' || char(8297) || ']*';
    SELECT RAISE(ABORT, 'windlass: task_spec: there may be at most 64 tags')
    WHERE (SELECT count(*) FROM json_each(NEW.tags)) > 64;
    SELECT RAISE(ABORT, 'windlass: task_spec: a time must be from the year 1970 to 9999')
    WHERE NEW.run_at NOT BETWEEN 0 AND 253402300799999
        OR NEW.deadline_at NOT BETWEEN 0 AND 253402300799999
        OR NEW.created_at NOT BETWEEN 0 AND 253402300799999;
    SELECT RAISE(ABORT, 'windlass: task_spec: backoff is not one that the API would take')
    WHERE NEW.backoff IS NOT NULL AND CASE
        WHEN NOT json_valid(NEW.backoff) THEN TRUE
        WHEN json_type(NEW.backoff) <> 'object' THEN TRUE
        ELSE EXISTS (
            SELECT 1 FROM json_each(NEW.backoff) AS b
            WHERE CASE
                WHEN b.key IN ('base_ms', 'max_ms')
                    THEN b.type <> 'integer' OR b.value NOT BETWEEN 0 AND 315360000000
                WHEN b.key = 'multiplier'
                    THEN b.type NOT IN ('integer', 'real') OR b.value NOT BETWEEN 1 AND 1000
                WHEN b.key = 'jitter' THEN b.type NOT IN ('true', 'false')
                WHEN b.key IN ('retryable', 'non_retryable')
                    THEN b.type <> 'array' OR json_array_length(b.value) > 100 OR EXISTS (
                        SELECT 1 FROM json_each(b.value) AS code
                        WHERE code.type <> 'text' OR length(code.value) NOT BETWEEN 1 AND 100
                            OR code.value GLOB '*[^A-Za-z0-9_.-]*')
                ELSE TRUE END)
            OR coalesce(NEW.backoff ->> 'max_ms', 300000)
                < coalesce(NEW.backoff ->> 'base_ms', 1000) END;
END;

DROP TRIGGER task_state_guard_update;
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
        usage = NEW.usage,
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

DROP TRIGGER task_progress_can_be_read_i;
CREATE TRIGGER task_progress_can_be_read_i BEFORE INSERT ON task_progress
WHEN EXISTS (
        SELECT 1 FROM json_tree(json_array(json(NEW.checkpoint), json(NEW.progress))) AS j
        WHERE (j.type IN ('integer', 'real') AND abs(j.atom) = 9e999)
           OR (j.type = 'integer' AND typeof(j.atom) = 'real')
           OR (j.type IN ('array', 'object') AND 65
               <= length(j.fullkey) - length(replace(replace(j.fullkey, '.', ''), '[', ''))))
    OR NEW.checkpoint GLOB '*\u[dD][89abAB]*' OR NEW.checkpoint GLOB '*\u0000*'
    OR NEW.progress GLOB '*\u[dD][89abAB]*' OR NEW.progress GLOB '*\u0000*'
BEGIN
    SELECT RAISE(ABORT, 'windlass: task_progress: JSON too deep, or no 64-bit float holds it');
END;

DROP TRIGGER task_progress_can_be_read_u;
CREATE TRIGGER task_progress_can_be_read_u BEFORE UPDATE ON task_progress
WHEN EXISTS (
        SELECT 1 FROM json_tree(json_array(json(NEW.checkpoint), json(NEW.progress))) AS j
        WHERE (j.type IN ('integer', 'real') AND abs(j.atom) = 9e999)
           OR (j.type = 'integer' AND typeof(j.atom) = 'real')
           OR (j.type IN ('array', 'object') AND 65
               <= length(j.fullkey) - length(replace(replace(j.fullkey, '.', ''), '[', ''))))
    OR NEW.checkpoint GLOB '*\u[dD][89abAB]*' OR NEW.checkpoint GLOB '*\u0000*'
    OR NEW.progress GLOB '*\u[dD][89abAB]*' OR NEW.progress GLOB '*\u0000*'
BEGIN
    SELECT RAISE(ABORT, 'windlass: task_progress: JSON too deep, or no 64-bit float holds it');
END;

DROP TRIGGER message_can_be_read;
CREATE TRIGGER message_can_be_read BEFORE INSERT ON message BEGIN
    SELECT RAISE(ABORT, 'windlass: message: an id is 36 characters, lower case, with hyphens')
    WHERE (NEW.id NOT LIKE '________-____-____-____-____________'
        OR replace(NEW.id, '-', '') GLOB '*[^0-9a-f]*'
        OR length(replace(NEW.id, '-', '')) <> 32)
        OR (NEW.redelivery_of NOT LIKE '________-____-____-____-____________'
        OR replace(NEW.redelivery_of, '-', '') GLOB '*[^0-9a-f]*'
        OR length(replace(NEW.redelivery_of, '-', '')) <> 32);
    SELECT RAISE(ABORT, 'windlass: message: the JSON is too deep, or no 64-bit float holds it')
    WHERE EXISTS (
        SELECT 1 FROM json_tree(NEW.payload) AS j
        WHERE (j.type IN ('integer', 'real') AND abs(j.atom) = 9e999)
           OR (j.type = 'integer' AND typeof(j.atom) = 'real')
           OR (j.type IN ('array', 'object') AND 64
               <= length(j.fullkey) - length(replace(replace(j.fullkey, '.', ''), '[', ''))))
        OR NEW.payload GLOB '*\u[dD][89abAB]*' OR NEW.payload GLOB '*\u0000*';
    SELECT RAISE(ABORT, 'windlass: message: the payload takes more than 1048576 bytes')
    WHERE length(CAST(NEW.payload AS BLOB)) > 1048576;
    SELECT RAISE(ABORT, 'windlass: message: a name is empty, not trimmed, or not plain text')
    FROM (SELECT value AS name FROM json_each(json_array(
            NEW.from_agent, NEW.to_agent, NEW.type, NEW.sent_by, NEW.correlation_id,
            NEW.idempotency_key)))
    WHERE name = '' OR trim(name, ' ' || char(160, 5760, 8239, 8287, 12288)) <> name
        OR name GLOB '*[' || char(1) || '-' || char(31) || char(127) || '-' || char(159)
            || char(1564, 8206, 8207, 8232) || '-' || char(8238, 8294) || '-' || char(8297) || ']*';
    SELECT RAISE(ABORT, 'windlass: message: a time must be from the year 1970 to 9999')
    WHERE NEW.created_at NOT BETWEEN 0 AND 253402300799999
        OR NEW.due_at NOT BETWEEN 0 AND 253402300799999
        OR NEW.expires_at NOT BETWEEN 0 AND 253402300799999;
END;

DROP TRIGGER dead_letter_can_be_read;
CREATE TRIGGER dead_letter_can_be_read BEFORE INSERT ON dead_letter BEGIN
    SELECT RAISE(ABORT, 'windlass: dead_letter: an id is 36 characters, lower case, with hyphens')
    WHERE (NEW.message_id NOT LIKE '________-____-____-____-____________'
        OR replace(NEW.message_id, '-', '') GLOB '*[^0-9a-f]*'
        OR length(replace(NEW.message_id, '-', '')) <> 32);
    SELECT RAISE(ABORT, 'windlass: dead_letter: the JSON is too deep, or no 64-bit float holds it')
    WHERE EXISTS (
        SELECT 1 FROM json_tree(NEW.original) AS j
        WHERE (j.type IN ('integer', 'real') AND abs(j.atom) = 9e999)
           OR (j.type = 'integer' AND typeof(j.atom) = 'real')
           OR (j.type IN ('array', 'object') AND 66
               <= length(j.fullkey) - length(replace(replace(j.fullkey, '.', ''), '[', ''))))
        OR NEW.original GLOB '*\u[dD][89abAB]*' OR NEW.original GLOB '*\u0000*';
    SELECT RAISE(ABORT, 'windlass: dead_letter: a time must be from the year 1970 to 9999')
    WHERE NEW.entered_at NOT BETWEEN 0 AND 253402300799999
        OR NEW.updated_at NOT BETWEEN 0 AND 253402300799999;
END;

DROP VIEW json_by_hand;
