-- One wait takes a signal.
UPDATE signal SET taken_by = $2, taken_at = $3 WHERE id = $1 AND taken_by IS NULL
