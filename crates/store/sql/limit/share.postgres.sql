-- Takes the lock $1 until the transaction ends, shared with others if there is room for all of them
-- when each adds at most $2, and counts what is held of the keys $3, whose limits are $4 and $5.
SELECT key, active, pending, began_at, taken, margin
FROM windlass_share($1::int, $2::int, $3::text[], $4::bigint[], $5::bigint[])
