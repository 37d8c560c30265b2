-- A task's steps as the plan of a replay sees them, in their order. Their results are not read:
-- they may be large, there may be many, and the copies are made in the database.
SELECT id, name, inputs_hash, occurrence, seq, run, created_at, idempotent, status, effect,
    expired_at
FROM step WHERE task_id = $1 AND seq > $2 ORDER BY seq LIMIT $3
