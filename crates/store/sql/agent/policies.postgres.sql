SELECT name, retry_policy FROM agent WHERE name = ANY ($1::text[])
