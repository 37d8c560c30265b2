-- A message that a handler waits for is written once, in that handler's hands, and what we wrote
-- ourselves is not read again by rules for what is written by hand: as on PostgreSQL.
DROP TRIGGER message_can_be_read;
DROP TRIGGER message_opens_its_inbox;
DROP TRIGGER message_is_new;

CREATE TRIGGER message_opens_its_inbox AFTER INSERT ON message
WHEN NEW.status IN ('pending', 'delivered') BEGIN
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
    WHERE CASE NEW.status
        WHEN 'pending' THEN NEW.deliveries <> 0
        WHEN 'delivered' THEN NEW.deliveries <> 1 OR NEW.request_digest = ''
        WHEN 'dead_lettered' THEN NOT EXISTS (
            SELECT 1 FROM dead_letter WHERE message_id = NEW.id)
        ELSE TRUE END;
END;

CREATE TRIGGER message_can_be_read BEFORE INSERT ON message
WHEN NEW.request_digest = '' BEGIN
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
