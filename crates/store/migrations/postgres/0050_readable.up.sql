-- What was written by hand can be read: a message or a dead letter that no reader understands would
-- spoil every claim and every page that it is on. Tasks have been held to the same contract from
-- the beginning.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- What is wrong with a message that did not come through the API; NULL if nothing is.
CREATE FUNCTION windlass_message_problem(sent message) RETURNS text
LANGUAGE sql STABLE
SET search_path FROM CURRENT AS $$
    SELECT coalesce(
        (SELECT n.field || ' ' || windlass_name_problem(n.name)
         FROM (VALUES ('from_agent', sent.from_agent), ('to_agent', sent.to_agent),
                   ('type', sent.type), ('sent_by', sent.sent_by),
                   ('correlation_id', sent.correlation_id),
                   ('idempotency_key', sent.idempotency_key)) AS n (field, name)
         WHERE windlass_name_problem(n.name) IS NOT NULL LIMIT 1),
        CASE WHEN sent.created_at NOT BETWEEN '1970-01-01Z' AND '9999-12-31Z'
                OR sent.due_at NOT BETWEEN '1970-01-01Z' AND '9999-12-31Z'
                OR sent.expires_at NOT BETWEEN '1970-01-01Z' AND '9999-12-31Z'
                THEN 'created_at, due_at and expires_at must be from the year 1970 to 9999'
            WHEN octet_length(sent.payload::text) > 1048576
                THEN 'the payload takes more than 1048576 bytes; send a reference'
            WHEN NOT windlass_json_fits(sent.payload)
                THEN 'the payload holds a number too large for a 64-bit float, a whole number that '
                    'would lose digits, or is nested more than 64 deep' END)
$$;

-- The API leaves the digest of what was sent with it; whatever has none is looked at here.
CREATE FUNCTION windlass_check_sent() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
DECLARE
    problem text := windlass_message_problem(NEW);
BEGIN
    IF problem IS NOT NULL THEN
        RAISE EXCEPTION 'windlass: %', problem;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER message_can_be_read BEFORE INSERT ON message FOR EACH ROW
    WHEN (NEW.request_digest = '')
    EXECUTE FUNCTION windlass_check_sent();

-- A dead letter is rare: every one of them is looked at.
CREATE FUNCTION windlass_check_letter() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    IF NOT windlass_json_fits(NEW.original) THEN
        RAISE EXCEPTION 'windlass: the original holds a number too large for a 64-bit float, a '
            'whole number that would lose digits, or is nested more than 64 deep';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER dead_letter_can_be_read BEFORE INSERT ON dead_letter FOR EACH ROW
    EXECUTE FUNCTION windlass_check_letter();
