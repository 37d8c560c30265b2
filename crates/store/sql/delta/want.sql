-- A node that cannot reach the one with the deltas wants chunks until $3.
UPDATE delta_source SET wanted_until = $3::timestamptz
WHERE task_id = $1::uuid AND attempt = $2::int
RETURNING task_id
