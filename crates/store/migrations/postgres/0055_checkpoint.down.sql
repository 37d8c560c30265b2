SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

ALTER TABLE step DROP COLUMN checkpoint_digest;
