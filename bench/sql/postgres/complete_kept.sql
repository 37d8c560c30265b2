WITH changed AS (
    UPDATE floor_state s
    SET status = 'completed', from_status = s.status, event = 'complete',
        change_id = gen_random_uuid(), actor = $4::text, change_lease_id = s.lease_id,
        lease_id = NULL, lease_expires_at = NULL, result = i.result::jsonb, entered_at = now(),
        updated_at = now(), finished_at = now()
    FROM unnest($1::uuid[], $2::uuid[], $3::text[]) AS i (id, lease_id, result)
    WHERE s.id = i.id AND s.lease_id = i.lease_id
    RETURNING s.id, s.change_id, s.from_status, s.actor, s.change_lease_id, s.updated_at
)
INSERT INTO floor_history (xid, task_id, change_id, from_status, to_status, event, actor,
    lease_id, at)
SELECT pg_current_xact_id()::text::bigint, id, change_id, from_status, 'completed', 'complete',
    actor, change_lease_id, updated_at
FROM changed
