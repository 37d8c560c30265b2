SELECT {agent_columns} FROM agent a LEFT JOIN venture v ON v.name = a.venture
WHERE a.name = $1::text
