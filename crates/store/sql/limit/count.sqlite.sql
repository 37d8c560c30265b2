-- What is held of the keys $1, without any lock: true a moment ago.
SELECT key, coalesce(active, 0), coalesce(pending, 0) FROM limit_use
WHERE key IN (SELECT value FROM json_each($1))
