-- How deep the tree below an agent is. The bound keeps one that was damaged by hand from going
-- round and round.
WITH RECURSIVE below (name, distance) AS (
    SELECT a.name, 1 FROM agent a WHERE a.parent = $1::text
    UNION
    SELECT a.name, below.distance + 1 FROM below JOIN agent a ON a.parent = below.name
    WHERE below.distance < $2::bigint)
SELECT coalesce(max(distance), 0)::bigint FROM below
