SELECT name, NULL, created_at, updated_at, archived_at FROM portfolio WHERE name = $1::text
