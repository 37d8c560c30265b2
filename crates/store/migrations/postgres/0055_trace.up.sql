-- What was told, and is looked for later. The digest of the checkpoint that came with a step's end:
-- the same call again is told from one that brings another checkpoint (only steps that must not run
-- twice end by a call of their own). And whose a thing was from an act on: whoever is assigned next
-- wipes nobody out.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

ALTER TABLE step ADD COLUMN checkpoint_digest text;
ALTER TABLE trouble_note ADD COLUMN assignee text;
ALTER TABLE dead_letter_note ADD COLUMN assignee text;

-- One code in both lists of a backoff is a mistake: as the API, so windlass_submit refuses it.
-- Tasks and agents that have it already keep it, so this is no part of what every row is held to.
CREATE FUNCTION windlass_codes_problem(backoff jsonb) RETURNS text
LANGUAGE sql IMMUTABLE RETURN (
    SELECT 'backoff: non_retryable has ' || code || ', and so has retryable'
    FROM jsonb_array_elements_text(backoff -> 'non_retryable') AS code
    WHERE backoff -> 'retryable' ? code LIMIT 1);

DO $$
DECLARE
    found text := pg_get_functiondef('windlass_submit(text, jsonb, jsonb)'::regprocedure);
    made text := replace(found, 'windlass_names_problem(kind, options));',
        'windlass_names_problem(kind, options),
                        windlass_codes_problem(options -> ''backoff''));');
BEGIN
    IF made = found THEN
        RAISE EXCEPTION 'windlass: windlass_submit is not as this migration knows it';
    END IF;
    EXECUTE made;
END $$;
