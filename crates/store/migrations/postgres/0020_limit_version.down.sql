SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

DROP TRIGGER pause_is_told ON pause;
DROP TRIGGER limit_rule_is_told ON limit_rule;
DROP FUNCTION windlass_limits_changed();
DROP TABLE limit_version;
