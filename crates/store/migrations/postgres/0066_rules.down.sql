SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

DROP FUNCTION windlass_rules_stand(bigint);

CREATE OR REPLACE FUNCTION windlass_admit(task uuid, committing boolean) RETURNS boolean
LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    keys text[];
    maxima bigint[];
    drained record;
    full_one record;
BEGIN
    SELECT p.scope, p.name, p.reason INTO drained
    FROM task_spec s, LATERAL (VALUES
        (1, 'global', ''), (3, 'venture', s.venture), (5, 'agent', coalesce(s.agent, s.callee)),
        (6, 'queue', s.queue)
    ) AS k (place, scope, name), pause p
    WHERE s.id = task AND s.profile <> 'ledger'
      AND p.scope = k.scope AND p.name = k.name AND p.mode = 'drain'
    ORDER BY k.place LIMIT 1;
    IF drained.scope IS NOT NULL THEN
        RAISE EXCEPTION 'windlass: % takes no new tasks until it is resumed%',
            windlass_key_words(drained.scope || ':' || drained.name),
            coalesce(': ' || drained.reason, '')
            USING ERRCODE = 'object_not_in_prerequisite_state', DETAIL = 'draining';
    END IF;
    SELECT array_agg(k.scope || ':' || k.name ORDER BY k.place),
           array_agg(r.max_pending ORDER BY k.place)
    INTO keys, maxima
    FROM task_spec s, LATERAL (VALUES
        (1, 'global', ''), (2, 'portfolio', s.portfolio), (3, 'venture', s.venture),
        (4, 'stage', s.stage), (5, 'agent', coalesce(s.agent, s.callee)),
        (6, 'queue', s.queue)
    ) AS k (place, scope, name), LATERAL (
        -- The rule for the name, or else that for each one.
        SELECT r.max_pending FROM limit_rule r
        WHERE r.scope = k.scope AND r.name IN (k.name, '')
        ORDER BY r.name = '' LIMIT 1) r
    WHERE s.id = task AND s.profile <> 'ledger' AND k.name IS NOT NULL
      AND r.max_pending IS NOT NULL;
    IF keys IS NULL THEN
        RETURN FALSE;
    END IF;
    IF committing THEN
        PERFORM windlass_hold(1, '{}');
    END IF;
    SELECT b.key, b.max_pending, coalesce(u.pending, 0) AS held INTO full_one
    FROM unnest(keys, maxima) WITH ORDINALITY AS b (key, max_pending, place)
    LEFT JOIN limit_use u ON u.key = b.key
    WHERE coalesce(u.pending, 0) - committing::int >= b.max_pending
    ORDER BY b.place LIMIT 1;
    IF full_one.key IS NOT NULL THEN
        RAISE EXCEPTION
            'windlass: % has % pending % and at most % % allowed; submit again later',
            windlass_key_words(full_one.key), full_one.held - committing::int,
            CASE full_one.held - committing::int WHEN 1 THEN 'task' ELSE 'tasks' END,
            full_one.max_pending, CASE full_one.max_pending WHEN 1 THEN 'is' ELSE 'are' END
            USING ERRCODE = 'configuration_limit_exceeded', DETAIL = 'queue_full';
    END IF;
    RETURN TRUE;
END $$;
