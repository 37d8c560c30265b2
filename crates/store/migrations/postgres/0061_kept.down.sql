SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

CREATE OR REPLACE FUNCTION windlass_check_retention() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
DECLARE
    task uuid := to_jsonb(OLD) ->> TG_ARGV[0];
BEGIN
    IF TG_TABLE_NAME = 'task_spec' AND NOT EXISTS (SELECT 1 FROM task_state WHERE id = task)
        OR EXISTS (
            SELECT 1 FROM task_state st JOIN profile p ON p.profile = st.profile
            WHERE st.id = task AND TG_TABLE_NAME <> 'task_spec'
              AND st.finished_at + p.retention_ms * interval '1 ms' <= clock_timestamp())
    THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'windlass: delete of % is refused: task % is not finished, or must be kept',
        TG_TABLE_NAME, task USING HINT = 'The table profile says what is kept for how long.';
END $$;
