SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

CREATE OR REPLACE FUNCTION windlass_check_letter() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    IF NOT windlass_json_fits(NEW.original) THEN
        RAISE EXCEPTION 'windlass: the original holds a number too large for a 64-bit float, a '
            'whole number that would lose digits, or is nested more than 64 deep';
    END IF;
    RETURN NEW;
END $$;
