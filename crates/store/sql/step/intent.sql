-- A step that must not run twice, by its id alone.
SELECT {step_columns} FROM step WHERE id = $1 AND NOT idempotent
