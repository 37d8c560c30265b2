-- What came from an index on.
SELECT from_index, deltas FROM delta_chunk
WHERE task_id = $1::uuid AND attempt = $2::int AND from_index >= $3::bigint
ORDER BY from_index
LIMIT 100
