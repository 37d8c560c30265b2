-- A delegation repeats one of its own caller, and nothing else: with the id or the key of another
-- caller's, or of a job, windlass_submit gave that one back as if it had been delegated. And a
-- delegation without a caller or a callee, or an inference without a pool, is refused in words.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- Whether a submit repeats what is there: as the store decides.
CREATE FUNCTION windlass_is_repeat(wanted task_spec, found task_spec) RETURNS boolean
LANGUAGE sql STABLE
SET search_path FROM CURRENT AS $$
    SELECT CASE WHEN wanted.profile IN ('delegation', 'ledger')
        THEN found.profile IN ('delegation', 'ledger') AND found.caller = wanted.caller
        ELSE windlass_same_request(wanted, found) END
$$;

-- Whom a task fails to name, before anything is written; NULL if nobody.
CREATE FUNCTION windlass_names_problem(kind text, options jsonb) RETURNS text
LANGUAGE sql IMMUTABLE RETURN CASE
    WHEN kind = 'delegation' AND NOT options ? 'caller'
        THEN 'a delegation must name its caller: who hands the work over'
    WHEN kind = 'delegation' AND NOT options ? 'callee'
        THEN 'a delegation must name its callee: who does the work'
    WHEN kind = 'inference' AND NOT options ? 'pool' THEN 'an inference must name its pool' END;

-- Only these two places of windlass_submit change, whatever else its other versions have changed.
DO $$
DECLARE
    found text := pg_get_functiondef('windlass_submit(text, jsonb, jsonb)'::regprocedure);
    made text := replace(replace(found,
        'kind <> ''delegation'' AND NOT windlass_same_request(wanted, found)',
        'NOT windlass_is_repeat(wanted, found)'),
        'windlass_backoff_problem(options -> ''backoff''));',
        'windlass_backoff_problem(options -> ''backoff''),
                        windlass_names_problem(kind, options));');
BEGIN
    IF strpos(made, 'windlass_is_repeat') = 0 OR strpos(made, 'windlass_names_problem') = 0 THEN
        RAISE EXCEPTION 'windlass: windlass_submit is not as this migration knows it';
    END IF;
    EXECUTE made;
END $$;
