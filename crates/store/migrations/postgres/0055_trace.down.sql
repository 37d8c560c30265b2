SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

ALTER TABLE step DROP COLUMN checkpoint_digest;
ALTER TABLE trouble_note DROP COLUMN assignee;
ALTER TABLE dead_letter_note DROP COLUMN assignee;

DO $$
BEGIN
    EXECUTE replace(pg_get_functiondef('windlass_submit(text, jsonb, jsonb)'::regprocedure),
        'windlass_names_problem(kind, options),
                        windlass_codes_problem(options -> ''backoff''));',
        'windlass_names_problem(kind, options));');
END $$;
DROP FUNCTION windlass_codes_problem(jsonb);
