-- A replay takes done steps along, and what a person failed: the new task's own steps, with the
-- origin's results.
INSERT INTO step (task_id, id, name, type, inputs_hash, occurrence, inputs, idempotent, status,
    result, attempt, actor, copied_from, created_at, ended_at, run)
SELECT $1::uuid, i.id, o.name, o.type, o.inputs_hash, o.occurrence, o.inputs, o.idempotent,
    o.status, o.result, o.attempt, o.actor, o.id, o.created_at, o.ended_at,
    CASE WHEN NOT o.idempotent THEN $3::bigint END
FROM unnest($4::uuid[], $5::uuid[]) AS i (id, origin_id)
JOIN step o ON o.task_id = $2::uuid AND o.id = i.origin_id
WHERE o.status IN ('done', 'rejected') AND o.expired_at IS NULL
ORDER BY o.seq
ON CONFLICT (task_id, id) DO NOTHING
RETURNING id
