SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- Two lanes of the same names hurt nobody, so every task may stay where it is.
DROP INDEX lane_names;
ALTER TABLE lane DROP COLUMN llm, DROP COLUMN model, DROP COLUMN tier;
CREATE INDEX lane_names ON lane (queue, profile, venture, portfolio, stage, agent);

CREATE OR REPLACE FUNCTION windlass_find_lane() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
DECLARE
    wanted task_spec%ROWTYPE;
    found bigint;
BEGIN
    SELECT * INTO wanted FROM task_spec s WHERE s.id = NEW.id;
    SELECT min(l.id) INTO found FROM lane l
    WHERE (l.queue, l.profile, l.venture, l.portfolio, l.stage, l.agent)
        = (NEW.queue, NEW.profile, coalesce(wanted.venture, ''), coalesce(wanted.portfolio, ''),
           coalesce(wanted.stage, ''), coalesce(wanted.agent, wanted.callee, ''));
    IF found IS NULL THEN
        INSERT INTO lane (queue, profile, venture, portfolio, stage, agent)
        VALUES (NEW.queue, NEW.profile, coalesce(wanted.venture, ''),
                coalesce(wanted.portfolio, ''), coalesce(wanted.stage, ''),
                coalesce(wanted.agent, wanted.callee, ''))
        RETURNING id INTO found;
    END IF;
    NEW.lane := found;
    RETURN NEW;
END $$;
