-- The tasks that repeat a root, directly or not, and the root: $2 replays at most.
WITH RECURSIVE family (id) AS (
    SELECT $1
    UNION
    SELECT s.id FROM family f JOIN task_spec s ON s.replay_of = f.id
)
SELECT id FROM family LIMIT $2 + 1
