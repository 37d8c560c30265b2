-- breaking: a program that does not know pins would put tasks into lanes of others.
-- Claims honour what tasks are pinned to (llm, model, tier), so tasks of one lane are pinned to the
-- same.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

ALTER TABLE lane
    ADD COLUMN llm text NOT NULL DEFAULT '',
    ADD COLUMN model text NOT NULL DEFAULT '',
    ADD COLUMN tier text NOT NULL DEFAULT '';
DROP INDEX lane_names;
CREATE INDEX lane_names
    ON lane (queue, profile, venture, portfolio, stage, agent, llm, model, tier);

CREATE OR REPLACE FUNCTION windlass_find_lane() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
DECLARE
    wanted task_spec%ROWTYPE;
    found bigint;
BEGIN
    SELECT * INTO wanted FROM task_spec s WHERE s.id = NEW.id;
    SELECT min(l.id) INTO found FROM lane l
    WHERE (l.queue, l.profile, l.venture, l.portfolio, l.stage, l.agent, l.llm, l.model, l.tier)
        = (NEW.queue, NEW.profile, coalesce(wanted.venture, ''), coalesce(wanted.portfolio, ''),
           coalesce(wanted.stage, ''), coalesce(wanted.agent, wanted.callee, ''),
           coalesce(wanted.llm, ''), coalesce(wanted.model, ''), coalesce(wanted.tier, ''));
    IF found IS NULL THEN
        INSERT INTO lane (queue, profile, venture, portfolio, stage, agent, llm, model, tier)
        VALUES (NEW.queue, NEW.profile, coalesce(wanted.venture, ''),
                coalesce(wanted.portfolio, ''), coalesce(wanted.stage, ''),
                coalesce(wanted.agent, wanted.callee, ''),
                coalesce(wanted.llm, ''), coalesce(wanted.model, ''), coalesce(wanted.tier, ''))
        RETURNING id INTO found;
    END IF;
    NEW.lane := found;
    RETURN NEW;
END $$;

-- What lives already goes to its lane; no rule of the machine is touched, so its triggers rest, and
-- nobody else writes meanwhile. That also finds the callees of delegations that were submitted
-- before limits of an agent were for them.
ALTER TABLE task_state DISABLE TRIGGER USER;
CREATE VIEW moving AS
SELECT t.id, s.queue, s.profile, coalesce(s.venture, '') AS venture,
       coalesce(s.portfolio, '') AS portfolio, coalesce(s.stage, '') AS stage,
       coalesce(s.agent, s.callee, '') AS agent, coalesce(s.llm, '') AS llm,
       coalesce(s.model, '') AS model, coalesce(s.tier, '') AS tier
FROM task_state t JOIN task_spec s ON s.id = t.id
WHERE t.finished_at IS NULL AND t.profile <> 'job';
INSERT INTO lane (queue, profile, venture, portfolio, stage, agent, llm, model, tier)
SELECT DISTINCT queue, profile, venture, portfolio, stage, agent, llm, model, tier FROM moving m
WHERE NOT EXISTS (
    SELECT 1 FROM lane l
    WHERE (l.queue, l.profile, l.venture, l.portfolio, l.stage, l.agent, l.llm, l.model, l.tier)
        = (m.queue, m.profile, m.venture, m.portfolio, m.stage, m.agent, m.llm, m.model, m.tier));
UPDATE task_state t SET lane = l.id
FROM moving m JOIN (
    SELECT min(id) AS id, queue, profile, venture, portfolio, stage, agent, llm, model, tier
    FROM lane GROUP BY queue, profile, venture, portfolio, stage, agent, llm, model, tier
) l USING (queue, profile, venture, portfolio, stage, agent, llm, model, tier)
WHERE m.id = t.id AND t.lane <> l.id;
DROP VIEW moving;
ALTER TABLE task_state ENABLE TRIGGER USER;
DELETE FROM limit_count;
INSERT INTO limit_count (key, backend, active, pending)
SELECT k, 0, count(*) FILTER (WHERE t.status IN ('claimed', 'running')),
       count(*) FILTER (WHERE t.status IN ('pending', 'retry'))
FROM task_state t JOIN lane l ON l.id = t.lane, unnest(l.keys) AS k
WHERE t.finished_at IS NULL
GROUP BY k;
