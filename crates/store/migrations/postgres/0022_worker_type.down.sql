SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

DELETE FROM limit_rule WHERE scope = 'worker_type';
ALTER TABLE limit_rule DROP CONSTRAINT a_worker_type_has_no_line;
ALTER TABLE limit_rule DROP CONSTRAINT limit_rule_scope_check;
ALTER TABLE limit_rule ADD CONSTRAINT limit_rule_scope_check
    CHECK (scope IN ('global', 'portfolio', 'venture', 'stage', 'agent', 'queue'));
