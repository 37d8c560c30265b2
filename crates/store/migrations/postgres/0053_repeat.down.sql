SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

DO $$
BEGIN
    EXECUTE replace(replace(
        pg_get_functiondef('windlass_submit(text, jsonb, jsonb)'::regprocedure),
        'NOT windlass_is_repeat(wanted, found)',
        'kind <> ''delegation'' AND NOT windlass_same_request(wanted, found)'),
        'windlass_backoff_problem(options -> ''backoff''),
                        windlass_names_problem(kind, options));',
        'windlass_backoff_problem(options -> ''backoff''));');
END $$;
DROP FUNCTION windlass_names_problem(text, jsonb);
DROP FUNCTION windlass_is_repeat(task_spec, task_spec);
