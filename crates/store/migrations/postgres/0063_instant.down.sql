SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

CREATE OR REPLACE FUNCTION windlass_check_sent() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
DECLARE
    problem text := windlass_message_problem(NEW);
BEGIN
    IF problem IS NOT NULL THEN
        RAISE EXCEPTION 'windlass: %', problem;
    END IF;
    RETURN NEW;
END $$;
