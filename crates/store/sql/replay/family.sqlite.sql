-- The tasks that repeat a root, directly or not, and the root, if it is still there: $2 replays at
-- most.
WITH RECURSIVE family (id) AS (
    SELECT $1
    UNION
    SELECT s.id FROM family f JOIN task_spec s ON s.replay_of = f.id
)
SELECT member.id, s.created_at, st.finished_at
FROM (SELECT id FROM family LIMIT $2 + 1) AS member
CROSS JOIN task_spec s ON s.id = member.id
CROSS JOIN task_state st ON st.id = member.id
