-- By name, after $1; a filter that is NULL lets everything through.
SELECT name, portfolio, created_at, updated_at, archived_at FROM venture
WHERE name {beyond} $1::text
  AND ($3::boolean OR archived_at IS NULL)
  AND ($4::text IS NULL OR portfolio = $4::text)
ORDER BY name {direction}
LIMIT $2::bigint
