-- What was written by hand can be read; migrations/postgres/0050_readable.up.sql says more.

-- Ids that no reader finds again become such that every reader finds. A lease that is replaced was
-- nobody's: it could not be named.
UPDATE message SET id = lower(id)
WHERE id <> lower(id) AND NOT EXISTS (SELECT 1 FROM message o WHERE o.id = lower(message.id));
UPDATE message SET id = lower(hex(randomblob(4)) || '-' || hex(randomblob(2)) || '-4'
    || substr(hex(randomblob(2)), 2) || '-8' || substr(hex(randomblob(2)), 2) || '-'
    || hex(randomblob(6)))
WHERE (id NOT LIKE '________-____-____-____-____________'
        OR replace(id, '-', '') GLOB '*[^0-9a-f]*'
        OR length(replace(id, '-', '')) <> 32);
UPDATE message SET redelivery_of = NULL
WHERE (redelivery_of NOT LIKE '________-____-____-____-____________'
        OR replace(redelivery_of, '-', '') GLOB '*[^0-9a-f]*'
        OR length(replace(redelivery_of, '-', '')) <> 32);
UPDATE message SET lease_id = lower(hex(randomblob(4)) || '-' || hex(randomblob(2)) || '-4'
    || substr(hex(randomblob(2)), 2) || '-8' || substr(hex(randomblob(2)), 2) || '-'
    || hex(randomblob(6)))
WHERE (lease_id NOT LIKE '________-____-____-____-____________'
        OR replace(lease_id, '-', '') GLOB '*[^0-9a-f]*'
        OR length(replace(lease_id, '-', '')) <> 32);

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
CREATE TRIGGER message_stays_readable BEFORE UPDATE ON message BEGIN
    SELECT RAISE(ABORT, 'windlass: message: an id is 36 characters, lower case, with hyphens')
    WHERE (NEW.lease_id NOT LIKE '________-____-____-____-____________'
        OR replace(NEW.lease_id, '-', '') GLOB '*[^0-9a-f]*'
        OR length(replace(NEW.lease_id, '-', '')) <> 32);
    SELECT RAISE(ABORT, 'windlass: message: a time must be from the year 1970 to 9999')
    WHERE NEW.due_at NOT BETWEEN 0 AND 253402300799999
        OR NEW.lease_expires_at NOT BETWEEN 0 AND 253402300799999
        OR NEW.delivered_at NOT BETWEEN 0 AND 253402300799999
        OR NEW.finished_at NOT BETWEEN 0 AND 253402300799999;
END;
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
           OR (j.type IN ('array', 'object') AND 64
               <= length(j.fullkey) - length(replace(replace(j.fullkey, '.', ''), '[', ''))))
        OR NEW.original GLOB '*\u[dD][89abAB]*' OR NEW.original GLOB '*\u0000*';
    SELECT RAISE(ABORT, 'windlass: dead_letter: a time must be from the year 1970 to 9999')
    WHERE NEW.entered_at NOT BETWEEN 0 AND 253402300799999
        OR NEW.updated_at NOT BETWEEN 0 AND 253402300799999;
END;
CREATE TRIGGER dead_letter_note_can_be_read BEFORE INSERT ON dead_letter_note BEGIN
    SELECT RAISE(ABORT, 'windlass: dead_letter_note: an id is 36 characters, lower case')
    WHERE (NEW.id NOT LIKE '________-____-____-____-____________'
        OR replace(NEW.id, '-', '') GLOB '*[^0-9a-f]*'
        OR length(replace(NEW.id, '-', '')) <> 32);
END;
