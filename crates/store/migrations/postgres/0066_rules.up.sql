-- A statement that takes the lock of limits may wait for it, with its COMMIT behind it in the same
-- flight: rules that were in force when it was sent may be others when it has the lock. It asks
-- here, after the lock, whether the rules that its node counted by are still the newest.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- Volatile: each of its statements sees what was committed before that statement. No setting of its
-- own, for the reason of migration 0057.
DO $migration$
BEGIN
EXECUTE replace($function$

CREATE FUNCTION here.windlass_rules_stand(version bigint)
RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
BEGIN
    PERFORM 1 FROM here.limit_version v WHERE v.version = $1;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'windlass: limits have changed' USING ERRCODE = 'WL002';
    END IF;
    RETURN TRUE;
END $$;

$function$, 'here.', quote_ident(current_schema()) || '.');
END $migration$;
