-- The steps of one key that these tasks began themselves and that must not run twice. Whoever is
-- about to run another one waits for this, so nothing is read of steps with other keys.
SELECT {step_columns} FROM step
WHERE task_id = ANY ($1::uuid[]) AND NOT idempotent AND copied_from IS NULL
  AND name = $2 AND inputs_hash = $3 AND occurrence = $4
