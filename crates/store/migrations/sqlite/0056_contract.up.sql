-- What is written by hand is held to the domain's contract for JSON: no less and no more. Until now
-- whole pairs of surrogates and keys with many dots were refused, and keys that occur twice and NUL
-- in names were taken. All triggers here only refuse: the store's own writer runs none of them.

-- A text that is inserted here is looked at; nothing is kept. It is a procedure, which SQLite has
-- none of.
CREATE VIEW json_by_hand (json, deepest) AS SELECT NULL, NULL WHERE FALSE;
CREATE TRIGGER json_can_be_read INSTEAD OF INSERT ON json_by_hand BEGIN
    -- Whether a number can be kept: whole ones up to 64 bits, others as far as a float goes. One
    -- that rounds to 2^64 may be less than that; then its text says so.
    SELECT RAISE(ABORT, 'windlass: the JSON is too deep, or no 64-bit float holds a number of it')
    WHERE EXISTS (
        SELECT 1 FROM json_tree(NEW.json) AS j
        WHERE j.type IN ('integer', 'real') AND abs(j.atom) = 9e999
           OR j.type = 'integer' AND typeof(j.atom) = 'real'
              AND NOT (j.atom > 0 AND j.atom < 18446744073709551616.0
                       OR j.atom = 18446744073709551616.0
                          AND coalesce(NEW.json -> j.fullkey, '') <= '18446744073709551615'
                          AND coalesce(length(NEW.json -> j.fullkey), 0) = 20));
    -- How deep something lies is counted, not read off its path: keys may hold what paths are made
    -- of.
    SELECT RAISE(ABORT, 'windlass: the JSON is too deep, or no 64-bit float holds a number of it')
    WHERE NEW.deepest < (
        WITH RECURSIVE
        node (id, parent) AS MATERIALIZED (
            SELECT j.id, j.parent FROM json_tree(NEW.json) AS j
            WHERE j.type IN ('array', 'object')),
        place (id, depth) AS (
            SELECT node.id, 1 FROM node WHERE node.parent IS NULL
            UNION ALL
            SELECT node.id, place.depth + 1 FROM place JOIN node ON node.parent = place.id
            WHERE place.depth <= NEW.deepest)
        SELECT max(place.depth) FROM place);
    SELECT RAISE(ABORT, 'windlass: the JSON has a key twice in one object')
    WHERE EXISTS (
        SELECT 1 FROM json_tree(NEW.json) AS j WHERE typeof(j.key) = 'text'
        GROUP BY j.parent, j.key HAVING count(*) > 1);
    -- Without the backslashes that stand for themselves, every one that is left begins an escape.
    SELECT RAISE(ABORT, 'windlass: the JSON holds the NUL character (\u0000)')
    WHERE replace(NEW.json, '\\', '/') GLOB '*\u0000*';
    SELECT RAISE(ABORT, 'windlass: the JSON holds half of a surrogate pair')
    FROM (SELECT '      ' || lower(replace(NEW.json, '\\', '/')) AS text)
    WHERE text GLOB '*\ud[89abcdef]*'
      AND (text GLOB '*\ud[89ab]??[^\]*' OR text GLOB '*\ud[89ab]??\[^u]*'
           OR text GLOB '*\ud[89ab]??\u[^d]*' OR text GLOB '*\ud[89ab]??\ud[^cdef]*'
           OR text GLOB '*[^\]?????\ud[cdef]*' OR text GLOB '*\[^u]????\ud[cdef]*'
           OR text GLOB '*\u[^d]???\ud[cdef]*' OR text GLOB '*\ud[^89ab]??\ud[cdef]*');
    -- SQLite reads bytes that are no character as U+FFFD, and U+FFFE and U+FFFF too.
    SELECT RAISE(ABORT, 'windlass: the JSON is not UTF-8')
    WHERE replace(replace(replace(NEW.json, char(65533), ''), CAST(x'efbfbe' AS TEXT), ''),
                  CAST(x'efbfbf' AS TEXT), '') GLOB '*' || char(65533) || '*';
END;

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
    INSERT INTO json_by_hand VALUES (NEW.payload, 64);
    INSERT INTO json_by_hand VALUES (NEW.tags, 64);
    SELECT RAISE(ABORT, 'windlass: task_spec: a name holds the NUL character')
    WHERE replace(json_array(
            NEW.queue, NEW.name, NEW.agent, NEW.venture, NEW.portfolio, NEW.stage, NEW.owner,
            NEW.caller, NEW.callee, NEW.pool, NEW.llm, NEW.model, NEW.tier, NEW.correlation_id,
            NEW.idempotency_key),
        '\\', '/') GLOB '*\u0000*';
    SELECT RAISE(ABORT, 'windlass: task_spec: a name is empty, not trimmed, or not plain text')
    FROM (SELECT value AS name FROM json_each(json_array(
            NEW.queue, NEW.name, NEW.agent, NEW.venture, NEW.portfolio, NEW.stage, NEW.owner,
            NEW.caller, NEW.callee, NEW.pool, NEW.llm, NEW.model, NEW.tier, NEW.correlation_id,
            NEW.idempotency_key))
        UNION ALL SELECT key FROM json_each(NEW.tags)
        UNION ALL SELECT '.' || value || '.' FROM json_each(NEW.tags))
    WHERE name = '' OR trim(name, ' ' || char(160, 5760, 8192, 8193, 8194, 8195, 8196,
            8197, 8198, 8199, 8200, 8201, 8202, 8239, 8287, 12288)) <> name
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
                WHEN b.key = 'on_exhausted'
                    THEN coalesce(b.value, 'failed') NOT IN ('poisoned', 'failed')
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
    INSERT INTO json_by_hand VALUES (NEW.result, 64);
    INSERT INTO json_by_hand VALUES (NEW.error, 64);
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
CREATE TRIGGER task_progress_can_be_read_i BEFORE INSERT ON task_progress BEGIN
    INSERT INTO json_by_hand VALUES (NEW.checkpoint, 64);
    INSERT INTO json_by_hand VALUES (NEW.progress, 64);
END;

DROP TRIGGER task_progress_can_be_read_u;
CREATE TRIGGER task_progress_can_be_read_u BEFORE UPDATE ON task_progress BEGIN
    INSERT INTO json_by_hand VALUES (NEW.checkpoint, 64);
    INSERT INTO json_by_hand VALUES (NEW.progress, 64);
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
    INSERT INTO json_by_hand VALUES (NEW.payload, 64);
    SELECT RAISE(ABORT, 'windlass: message: the payload takes more than 1048576 bytes')
    WHERE length(CAST(NEW.payload AS BLOB)) > 1048576;
    SELECT RAISE(ABORT, 'windlass: message: a name holds the NUL character')
    WHERE replace(json_array(
            NEW.from_agent, NEW.to_agent, NEW.type, NEW.sent_by, NEW.correlation_id,
            NEW.idempotency_key),
        '\\', '/') GLOB '*\u0000*';
    SELECT RAISE(ABORT, 'windlass: message: a name is empty, not trimmed, or not plain text')
    FROM (SELECT value AS name FROM json_each(json_array(
            NEW.from_agent, NEW.to_agent, NEW.type, NEW.sent_by, NEW.correlation_id,
            NEW.idempotency_key)))
    WHERE name = '' OR trim(name, ' ' || char(160, 5760, 8192, 8193, 8194, 8195, 8196,
            8197, 8198, 8199, 8200, 8201, 8202, 8239, 8287, 12288)) <> name
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
    INSERT INTO json_by_hand VALUES (NEW.original, 66);
    SELECT RAISE(ABORT, 'windlass: dead_letter: a time must be from the year 1970 to 9999')
    WHERE NEW.entered_at NOT BETWEEN 0 AND 253402300799999
        OR NEW.updated_at NOT BETWEEN 0 AND 253402300799999;
END;

-- An agent that nobody can read would spoil every list that it is on. The store's writer is held to
-- the same by the domain.
CREATE VIEW agent_by_hand (
    name, role, parent, venture, portfolio, queue, worker_type, executor, retry_policy, authority,
    created_at, updated_at, archived_at)
AS SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL WHERE FALSE;
CREATE TRIGGER agent_by_hand_can_be_read INSTEAD OF INSERT ON agent_by_hand BEGIN
    INSERT INTO json_by_hand VALUES (NEW.executor, 64);
    INSERT INTO json_by_hand VALUES (NEW.retry_policy, 64);
    INSERT INTO json_by_hand VALUES (NEW.authority, 64);
    SELECT RAISE(ABORT, 'windlass: agent: a name holds the NUL character')
    WHERE replace(json_array(
            NEW.name, NEW.role, NEW.parent, NEW.venture, NEW.portfolio, NEW.queue, NEW.worker_type),
        '\\', '/') GLOB '*\u0000*';
    SELECT RAISE(ABORT, 'windlass: agent: a name is empty, too long, not trimmed, or not plain')
    FROM (SELECT value AS name, 255 AS most FROM json_each(json_array(
            NEW.name, NEW.role, NEW.parent, NEW.venture, NEW.portfolio, NEW.queue, NEW.worker_type))
        UNION ALL SELECT value, 255 FROM json_each(NEW.authority, '$.agents')
        UNION ALL SELECT value, 255 FROM json_each(NEW.authority, '$.ventures')
        UNION ALL SELECT NEW.executor ->> 'url', 4096)
    WHERE name = '' OR length(CAST(name AS BLOB)) > most
        OR trim(name, ' ' || char(160, 5760, 8192, 8193, 8194, 8195, 8196,
            8197, 8198, 8199, 8200, 8201, 8202, 8239, 8287, 12288)) <> name
        OR name GLOB '*[' || char(1) || '-' || char(31) || char(127) || '-' || char(159)
            || char(1564, 8206, 8207, 8232) || '-' || char(8238, 8294) || '-' || char(8297) || ']*';
    SELECT RAISE(ABORT, 'windlass: agent: a time must be from the year 1970 to 9999')
    WHERE NEW.created_at NOT BETWEEN 0 AND 253402300799999
        OR NEW.updated_at NOT BETWEEN 0 AND 253402300799999
        OR NEW.archived_at NOT BETWEEN 0 AND 253402300799999;
    SELECT RAISE(ABORT, 'windlass: agent: authority is {agents: [names], ventures: [names]}')
    WHERE json_type(NEW.authority) IS NOT 'object' OR EXISTS (
        SELECT 1 FROM json_each(NEW.authority) AS grants
        WHERE grants.key NOT IN ('agents', 'ventures') OR grants.type <> 'array'
            OR json_array_length(NEW.authority, '$.' || grants.key) > 1000
            OR EXISTS (SELECT 1 FROM json_each(NEW.authority, '$.' || grants.key) AS granted
                       WHERE granted.type <> 'text'));
    SELECT RAISE(ABORT, 'windlass: agent: executor is not one that the API would take')
    WHERE NEW.executor IS NOT NULL AND (
        json_type(NEW.executor) <> 'object'
        OR coalesce(NEW.executor ->> 'type', '')
            NOT IN ('in_process', 'session', 'command', 'webhook')
        OR EXISTS (
            SELECT 1 FROM json_each(NEW.executor) AS e
            WHERE CASE e.key
                WHEN 'type' THEN e.type <> 'text'
                WHEN 'command' THEN NEW.executor ->> 'type' <> 'command' OR e.type <> 'array'
                    OR json_array_length(NEW.executor, '$.command') NOT BETWEEN 1 AND 100
                    OR coalesce(NEW.executor ->> '$.command[0]', '') = ''
                    OR EXISTS (SELECT 1 FROM json_each(NEW.executor, '$.command') AS word
                               WHERE word.type <> 'text'
                                   OR length(CAST(word.value AS BLOB)) > 4096)
                WHEN 'url' THEN NEW.executor ->> 'type' <> 'webhook' OR e.type <> 'text'
                    OR NOT (e.value GLOB 'http://*' OR e.value GLOB 'https://*')
                WHEN 'timeout_ms' THEN NEW.executor ->> 'type' NOT IN ('command', 'webhook')
                    OR e.type NOT IN ('integer', 'null')
                    OR e.value NOT BETWEEN 1 AND 315360000000
                ELSE TRUE END)
        OR NEW.executor ->> 'type' = 'command' AND json_type(NEW.executor, '$.command') IS NULL
        OR NEW.executor ->> 'type' = 'webhook' AND json_type(NEW.executor, '$.url') IS NULL);
    SELECT RAISE(ABORT, 'windlass: agent: the backoff is not one that the API would take')
    WHERE json_type(NEW.retry_policy, '$.backoff') IS NOT NULL AND (
        json_type(NEW.retry_policy, '$.backoff') <> 'object'
        OR EXISTS (
            SELECT 1 FROM json_each(NEW.retry_policy, '$.backoff') AS b
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
        OR coalesce(NEW.retry_policy ->> '$.backoff.max_ms', 300000)
            < coalesce(NEW.retry_policy ->> '$.backoff.base_ms', 1000));
END;
CREATE TRIGGER agent_can_be_read BEFORE INSERT ON agent BEGIN
    INSERT INTO agent_by_hand VALUES (
        NEW.name, NEW.role, NEW.parent, NEW.venture, NEW.portfolio, NEW.queue, NEW.worker_type,
        NEW.executor, NEW.retry_policy, NEW.authority, NEW.created_at, NEW.updated_at,
        NEW.archived_at);
END;
CREATE TRIGGER agent_stays_readable BEFORE UPDATE ON agent BEGIN
    INSERT INTO agent_by_hand VALUES (
        NEW.name, NEW.role, NEW.parent, NEW.venture, NEW.portfolio, NEW.queue, NEW.worker_type,
        NEW.executor, NEW.retry_policy, NEW.authority, NEW.created_at, NEW.updated_at,
        NEW.archived_at);
END;
