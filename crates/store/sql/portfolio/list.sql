-- By name, after $1.
SELECT name, NULL, created_at, updated_at, archived_at FROM portfolio
WHERE name {beyond} $1::text
  AND ($3::boolean OR archived_at IS NULL)
  AND $4::text IS NULL
ORDER BY name {direction}
LIMIT $2::bigint
