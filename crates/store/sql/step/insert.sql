-- A step that the cold path decided to write; its task is locked.
INSERT INTO step (task_id, id, name, type, inputs_hash, occurrence, inputs, idempotent, status,
    result, lease_id, attempt, actor, created_at, ended_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
