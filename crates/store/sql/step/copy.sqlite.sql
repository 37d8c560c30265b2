-- A replay takes a done step along, or one that a person failed: the new task's own step, with
-- the origin's result.
INSERT INTO step (task_id, id, name, type, inputs_hash, occurrence, inputs, idempotent, status,
    result, attempt, actor, copied_from, created_at, ended_at, run)
SELECT $1, $4, name, type, inputs_hash, occurrence, inputs, idempotent, status, result, attempt,
    actor, id, created_at, ended_at, iif(idempotent, NULL, $3)
FROM step
WHERE task_id = $2 AND id = $5 AND status IN ('done', 'rejected') AND expired_at IS NULL
ON CONFLICT (task_id, id) DO NOTHING
