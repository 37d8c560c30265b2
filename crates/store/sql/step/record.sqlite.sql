-- Records a step that is done. Guarded by the lease: matching suffices, because what was done
-- before the lease was lost hurts nobody until somebody else has it.
INSERT INTO step (task_id, id, name, type, inputs_hash, occurrence, idempotent, status, result,
    lease_id, attempt, actor, created_at, ended_at)
SELECT id, $4, $5, $6, $7, $8, 1, 'done', $9, lease_id, attempt, $10, :now, :now
FROM task_state WHERE id = $2 AND status = 'running' AND lease_id = $3
ON CONFLICT (task_id, id) DO NOTHING
