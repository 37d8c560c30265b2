-- What is held of the keys $1, without any lock: true a moment ago.
SELECT key, active, pending FROM limit_use WHERE key = ANY ($1::text[])
