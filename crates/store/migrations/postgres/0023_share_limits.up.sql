-- Where limits leave plenty of room, claims need not wait for each other, nor submits.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- Takes the lock together with others, at most eight: each has one of eight seats for itself.
CREATE FUNCTION windlass_sit(lock int) RETURNS void LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT AS $$
DECLARE
    first int := pg_backend_pid() % 8;
    place int;
BEGIN
    PERFORM pg_advisory_xact_lock_shared(hashtext('windlass ' || current_schema()), lock);
    FOR n IN 0..7 LOOP
        place := 16 * lock + (first + n) % 8;
        IF pg_try_advisory_xact_lock(hashtext('windlass ' || current_schema()), place) THEN
            RETURN;
        END IF;
    END LOOP;
    PERFORM pg_advisory_xact_lock(hashtext('windlass ' || current_schema()), 16 * lock + first);
END $$;

-- Like windlass_hold, but the lock is shared where that is safe. Whoever shares it adds at most
-- `adding` tasks, and there are never more than eight of them: as long as all of these together fit
-- under every limit, whoever counts last has counted enough. That much is `margin`; it is 0 for
-- whoever has the lock alone. Limits that are lower than it are never shared.
CREATE FUNCTION windlass_share(
    lock int, adding int, keys text[], most_active bigint[], most_pending bigint[])
RETURNS TABLE (key text, active bigint, pending bigint, began_at timestamptz, taken bigint,
    margin bigint)
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    needed bigint := adding * 8;
    actives bigint[];
    pendings bigint[];
    is_ample boolean;
BEGIN
    IF needed <= ALL (most_active) AND needed <= ALL (most_pending) THEN
        BEGIN
            IF lock & 1 <> 0 THEN
                PERFORM windlass_sit(1);
            END IF;
            IF lock & 2 <> 0 THEN
                PERFORM windlass_sit(2);
            END IF;
            SELECT array_agg(h.active ORDER BY k.place), array_agg(h.pending ORDER BY k.place),
                bool_and(h.active + needed <= k.most_active
                    AND h.pending + needed <= k.most_pending)
            INTO actives, pendings, is_ample
            FROM unnest(keys, most_active, most_pending) WITH ORDINALITY
                    AS k (key, most_active, most_pending, place),
                LATERAL (
                    SELECT coalesce(sum(c.active), 0)::bigint AS active,
                        coalesce(sum(c.pending), 0)::bigint AS pending
                    FROM limit_count c WHERE c.key = k.key) h;
            IF is_ample THEN
                RETURN QUERY
                SELECT k.key, k.active, k.pending, NULL::timestamptz, NULL::bigint, needed
                FROM unnest(keys, actives, pendings) AS k (key, active, pending);
                RETURN;
            END IF;
            -- Going back gives the shared lock back: two who share it could not both have it alone.
            RAISE EXCEPTION 'windlass: there is too little room to share' USING ERRCODE = 'WL001';
        EXCEPTION WHEN SQLSTATE 'WL001' THEN
            NULL;
        END;
    END IF;
    RETURN QUERY SELECT h.key, h.active, h.pending, h.began_at, h.taken, 0::bigint
    FROM windlass_hold(lock, keys) AS h;
END $$;
