-- The oldest signal of a key that nobody has taken.
SELECT {signal_columns} FROM signal
WHERE key = $1 AND name = $2 AND taken_by IS NULL
ORDER BY created_at, id
LIMIT 1
