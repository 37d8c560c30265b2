-- The audit can be asked about somebody, about something, and about a time.
--
-- The subject is what an entry is about: a message, an approval, a task, an agent, or a limit as
-- scope:name. It is made of the detail, so that the entries that are there have one as well.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

ALTER TABLE audit ADD COLUMN subject text GENERATED ALWAYS AS (
    coalesce(detail ->> 'message', detail ->> 'approval', detail ->> 'task', detail ->> 'agent',
        detail ->> 'venture', detail ->> 'portfolio', detail ->> 'alert',
        (detail -> 'after' ->> 'scope') || coalesce(':' || (detail -> 'after' ->> 'name'), ''),
        (detail -> 'before' ->> 'scope') || coalesce(':' || (detail -> 'before' ->> 'name'), ''),
        detail ->> 'name')) STORED;
CREATE INDEX audit_subject ON audit (subject, seq) WHERE subject IS NOT NULL;
CREATE INDEX audit_actor ON audit (actor, seq);
