-- Everything that a send must know, in one row; consider.postgres.sql says more. A subquery sees no
-- outer column behind its WITH here, so each line begins with the names that were given.
SELECT {message_columns},
    $6,
    a.name, a.venture, a.archived_at IS NOT NULL, {agent_handler}, {agent_converses},
    s.name, s.venture, s.archived_at IS NOT NULL, s.authority,
    (WITH RECURSIVE line (name, distance) AS (
        SELECT p.parent, 1 FROM agent p WHERE p.name = $4 AND p.parent IS NOT NULL
        UNION ALL
        SELECT p.parent, line.distance + 1 FROM line JOIN agent p ON p.name = line.name
        WHERE p.parent IS NOT NULL AND line.distance < $7)
     SELECT json_group_array(name) FROM (SELECT name FROM line ORDER BY distance)),
    (WITH RECURSIVE line (name, distance) AS (
        SELECT p.parent, 1 FROM agent p WHERE p.name = $2 AND p.parent IS NOT NULL
        UNION ALL
        SELECT p.parent, line.distance + 1 FROM line JOIN agent p ON p.name = line.name
        WHERE p.parent IS NOT NULL AND line.distance < $7)
     SELECT json_group_array(name) FROM (SELECT name FROM line ORDER BY distance))
FROM (SELECT 1) AS once
LEFT JOIN agent a ON a.name = $4
LEFT JOIN agent s ON s.name = $2 AND $5
LEFT JOIN message m ON m.id = coalesce(
    (SELECT e.id FROM message e WHERE e.id = $1),
    (SELECT e.id FROM message e WHERE e.from_agent = $2 AND e.idempotency_key = $3))
