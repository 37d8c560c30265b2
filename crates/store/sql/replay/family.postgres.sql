-- The tasks that repeat a root, directly or not, and the root: $2 replays at most. Children are
-- looked up one parent after the other, as in `count`.
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
SELECT id FROM family LIMIT $2::bigint + 1
