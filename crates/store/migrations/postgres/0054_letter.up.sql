-- A dead letter holds its message, and a message may hold a result: each wraps what is 64 deep at
-- most once more. The end of a delegation must stand, however deep its result is.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

CREATE OR REPLACE FUNCTION windlass_check_letter() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    IF EXISTS (
        SELECT 1 FROM jsonb_path_query(NEW.original, 'strict $.**{2}') AS v
        WHERE NOT windlass_json_fits(v)
        UNION ALL
        SELECT 1 FROM jsonb_path_query(
            NEW.original, 'strict $.**{0 to 1} ? (@.type() == "number")') AS v
        WHERE NOT windlass_json_fits(v))
    THEN
        RAISE EXCEPTION 'windlass: the original holds a number too large for a 64-bit float, a '
            'whole number that would lose digits, or is nested more than 66 deep';
    END IF;
    RETURN NEW;
END $$;
