-- Steps that wait for a person, oldest first.
SELECT {step_columns} FROM step WHERE status = 'in_doubt' AND seq > $1 ORDER BY seq LIMIT $2
