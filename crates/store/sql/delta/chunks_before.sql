-- The last chunks that begin before an index: one of them may reach beyond it.
SELECT from_index, deltas FROM (
    SELECT from_index, deltas FROM delta_chunk
    WHERE task_id = $1::uuid AND attempt = $2::int AND from_index < $3::bigint
    ORDER BY from_index DESC
    LIMIT 20) AS before
ORDER BY from_index
