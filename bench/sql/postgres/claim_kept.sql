WITH picked AS MATERIALIZED (
    SELECT id FROM floor_state
    WHERE ready AND queue = $1::text AND profile = 'job'
    ORDER BY order_key, id
    LIMIT $2::bigint
    FOR UPDATE SKIP LOCKED
), changed AS (
    UPDATE floor_state s
    SET status = 'running', from_status = s.status, event = 'claim', change_id = gen_random_uuid(),
        actor = $3::text, ready = false, attempt = s.attempt + 1, lease_id = gen_random_uuid(),
        lease_expires_at = now() + interval '60 s', claim_id = $4::uuid, claimed_by = $3,
        claimed_at = now(), started_at = now(), entered_at = now(), updated_at = now()
    FROM picked p
    JOIN floor_spec f ON f.id = p.id
    WHERE s.id = p.id
    RETURNING s.id, s.lease_id, f.payload::text, s.change_id, s.from_status, s.actor,
        s.updated_at
), kept AS (
    INSERT INTO floor_history (xid, task_id, change_id, from_status, to_status, event, actor,
        lease_id, at)
    SELECT pg_current_xact_id()::text::bigint, id, change_id, from_status, 'running', 'claim',
        actor, lease_id, updated_at
    FROM changed
)
SELECT id, lease_id, payload FROM changed
