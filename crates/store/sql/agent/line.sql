-- Whoever is above an agent, its parent first. Plain names may lead to nobody: the line ends. The
-- bound keeps a tree that was damaged by hand from going round and round.
WITH RECURSIVE line (name, distance) AS (
    SELECT a.parent, 1 FROM agent a WHERE a.name = $1::text AND a.parent IS NOT NULL
    UNION ALL
    SELECT a.parent, line.distance + 1 FROM line JOIN agent a ON a.name = line.name
    WHERE a.parent IS NOT NULL AND line.distance < $2::bigint)
SELECT name FROM line ORDER BY distance
