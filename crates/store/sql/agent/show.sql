SELECT name, retry_policy, created_at, updated_at FROM agent WHERE name = $1::text
