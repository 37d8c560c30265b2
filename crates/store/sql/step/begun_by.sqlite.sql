-- The steps that these tasks began themselves and that must not run twice.
SELECT {step_columns} FROM step
WHERE task_id IN (SELECT value FROM json_each($1)) AND NOT idempotent AND copied_from IS NULL
