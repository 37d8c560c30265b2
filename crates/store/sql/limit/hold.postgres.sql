-- Takes the lock $1 until the transaction ends, and then counts what is held of the keys $2.
SELECT key, active, pending, began_at, taken FROM windlass_hold($1::int, $2::text[])
