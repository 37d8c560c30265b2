-- The intent of a step that must not run twice; its task is locked, and so is its family. The run
-- takes its number here: asking for it first would be a round trip of its own.
INSERT INTO step (task_id, id, name, type, inputs_hash, occurrence, inputs, idempotent, status,
    lease_id, attempt, actor, created_at, run)
VALUES ($1, $2, $3, $4, $5, $6, $7, FALSE, 'begun', $8, $9, $10, $11, {next_run})
RETURNING run
