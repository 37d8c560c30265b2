SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

DROP FUNCTION windlass_share(int, int, text[], bigint[], bigint[]);
DROP FUNCTION windlass_sit(int);
