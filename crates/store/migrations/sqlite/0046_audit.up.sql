-- The audit's subject; migrations/postgres/0046_audit.up.sql says more.
ALTER TABLE audit ADD COLUMN subject TEXT GENERATED ALWAYS AS (
    coalesce(detail ->> 'message', detail ->> 'approval', detail ->> 'task', detail ->> 'agent',
        detail ->> 'venture', detail ->> 'portfolio', detail ->> 'alert',
        (detail -> 'after' ->> 'scope') || coalesce(':' || (detail -> 'after' ->> 'name'), ''),
        (detail -> 'before' ->> 'scope') || coalesce(':' || (detail -> 'before' ->> 'name'), ''),
        detail ->> 'name')) VIRTUAL;
CREATE INDEX audit_subject ON audit (subject, seq) WHERE subject IS NOT NULL;
CREATE INDEX audit_actor ON audit (actor, seq);
