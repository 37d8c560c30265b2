-- Everything that a send must know, in one row: the time, the message that it repeats, its receiver
-- with the line above it, its sender likewise if an agent speaks, and which registry it is. Plain
-- names may lead to nobody; the bound keeps a tree that was damaged by hand from going round and
-- round.
SELECT {message_columns},
    coalesce($6::timestamptz, date_trunc('milliseconds', clock_timestamp())),
    a.name, a.venture, a.archived_at IS NOT NULL, {agent_handler}, {agent_converses},
    s.name, s.venture, s.archived_at IS NOT NULL, s.authority,
    (WITH RECURSIVE line (name, distance) AS (
        SELECT a.parent, 1 WHERE a.parent IS NOT NULL
        UNION ALL
        SELECT p.parent, line.distance + 1 FROM line JOIN agent p ON p.name = line.name
        WHERE p.parent IS NOT NULL AND line.distance < $7::bigint)
     SELECT coalesce(jsonb_agg(line.name ORDER BY distance), '[]') FROM line),
    (WITH RECURSIVE line (name, distance) AS (
        SELECT s.parent, 1 WHERE s.parent IS NOT NULL
        UNION ALL
        SELECT p.parent, line.distance + 1 FROM line JOIN agent p ON p.name = line.name
        WHERE p.parent IS NOT NULL AND line.distance < $7::bigint)
     SELECT coalesce(jsonb_agg(line.name ORDER BY distance), '[]') FROM line),
    (SELECT version FROM registry)
FROM (SELECT 1) AS once
LEFT JOIN agent a ON a.name = $4::text
LEFT JOIN agent s ON s.name = $2::text AND $5::boolean
LEFT JOIN message m ON m.id = coalesce(
    (SELECT e.id FROM message e WHERE e.id = $1::uuid),
    (SELECT e.id FROM message e WHERE e.from_agent = $2::text AND e.idempotency_key = $3::text))
