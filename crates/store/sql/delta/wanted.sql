-- Of which tasks this node's deltas are wanted in chunks.
SELECT task_id, attempt FROM delta_source
WHERE node_id = $1::uuid AND wanted_until > $2::timestamptz AND total IS NULL
