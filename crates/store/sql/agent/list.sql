-- By name, after $1; a filter that is NULL lets everything through.
SELECT {agent_columns} FROM agent a LEFT JOIN venture v ON v.name = a.venture
WHERE a.name {beyond} $1::text
  AND ($3::boolean OR a.archived_at IS NULL)
  AND ($4::text IS NULL OR a.role = $4::text)
  AND ($5::text IS NULL OR a.parent = $5::text)
  AND ($6::text IS NULL OR a.venture = $6::text)
  AND ($7::text IS NULL OR coalesce(v.portfolio, a.portfolio) = $7::text)
ORDER BY a.name {direction}
LIMIT $2::bigint
