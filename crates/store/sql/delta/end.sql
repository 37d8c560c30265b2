-- The attempt is over and all of its deltas are in chunks.
UPDATE delta_source SET total = $4::bigint
WHERE task_id = $1::uuid AND attempt = $2::int AND node_id = $3::uuid
