SELECT name, retry_policy FROM agent WHERE name IN (SELECT value FROM json_each($1))
