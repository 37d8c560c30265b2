-- With which word the last delivery of a message ended, so that another word after it is known as
-- such: a message that was given back looks the same whatever its handler said.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

ALTER TABLE message ADD COLUMN ending_digest text;
