-- How many tasks repeat a root, directly or not; $2 of them at most. The root stands in the family,
-- so one more is counted, and taken off.
WITH RECURSIVE family (id) AS (
    SELECT $1
    UNION
    SELECT s.id FROM family f JOIN task_spec s ON s.replay_of = f.id
)
SELECT count(*) - 1 FROM (SELECT id FROM family LIMIT $2 + 1) AS counted
