SELECT name, portfolio, created_at, updated_at, archived_at FROM venture WHERE name = $1::text
