-- Times are whole milliseconds everywhere; those of a message that was written by hand are made so.
-- A cursor tells no more: a list that was read in pages showed such a message again and again, or
-- left out those beside it.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

CREATE OR REPLACE FUNCTION windlass_check_sent() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
DECLARE
    problem text := windlass_message_problem(NEW);
BEGIN
    IF problem IS NOT NULL THEN
        RAISE EXCEPTION 'windlass: %', problem;
    END IF;
    NEW.created_at := date_trunc('milliseconds', NEW.created_at);
    NEW.due_at := date_trunc('milliseconds', NEW.due_at);
    NEW.expires_at := date_trunc('milliseconds', NEW.expires_at);
    RETURN NEW;
END $$;

-- Those that are there: what they say never changes, and is read as this already.
ALTER TABLE message DISABLE TRIGGER message_follows_the_machine;
UPDATE message SET created_at = date_trunc('milliseconds', created_at)
WHERE created_at <> date_trunc('milliseconds', created_at);
ALTER TABLE message ENABLE TRIGGER message_follows_the_machine;
