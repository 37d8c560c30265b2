-- Removes signals of keys that nobody took. Asked twice whether it is taken: a wait may take it
-- between the search and the removal.
DELETE FROM signal WHERE taken_by IS NULL AND id IN (
    SELECT id FROM signal
    WHERE key IS NOT NULL AND taken_by IS NULL AND created_at <= $1::timestamptz
    ORDER BY created_at
    LIMIT $2::bigint)
RETURNING id
