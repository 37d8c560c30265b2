-- How many tasks one session of a worker type holds is a rule like the others.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

ALTER TABLE limit_rule DROP CONSTRAINT limit_rule_scope_check;
ALTER TABLE limit_rule ADD CONSTRAINT limit_rule_scope_check CHECK (scope IN
    ('global', 'portfolio', 'venture', 'stage', 'agent', 'queue', 'worker_type'));
-- Sessions hold tasks; they keep none waiting.
ALTER TABLE limit_rule ADD CONSTRAINT a_worker_type_has_no_line CHECK (
    scope <> 'worker_type' OR (max_pending IS NULL AND rate_count IS NULL));
INSERT INTO limit_rule (scope, name, max_active, updated_at, updated_by) VALUES
    ('worker_type', 'ceo_handler', 5, date_trunc('milliseconds', clock_timestamp()), 'windlass'),
    ('worker_type', 'vp_handler', 10, date_trunc('milliseconds', clock_timestamp()), 'windlass'),
    ('worker_type', 'crew_executor', 1, date_trunc('milliseconds', clock_timestamp()), 'windlass');
