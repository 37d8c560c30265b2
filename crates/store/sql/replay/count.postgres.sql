-- How many tasks repeat a root, directly or not; $2 of them at most. The root stands in the family,
-- so one more is counted, and taken off. Children are looked up one parent after the other, in the
-- index's order and within the bound: as a join they would be planned, without statistics, as a
-- walk over all tasks.
WITH RECURSIVE family (id) AS (
    SELECT $1::uuid
    UNION
    SELECT child.id
    FROM family f
    CROSS JOIN LATERAL (
        SELECT s.id FROM task_spec s
        WHERE s.replay_of = f.id
        ORDER BY s.created_at, s.id
        LIMIT $2::bigint + 1) AS child
)
SELECT count(*) - 1 FROM (SELECT id FROM family LIMIT $2::bigint + 1) AS counted
