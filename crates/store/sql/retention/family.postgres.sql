-- The tasks of each family whose root ($2) is asked for, if nothing of it stays: each has ended at
-- $1 or before, none is left for a person to look at or to decide over, and nobody waits for the
-- end of one. A family goes as a whole or not at all, because whoever repeats one of them must know
-- what all have run. Each task is looked at once.
-- Unlike `replay/begun` this has no bound: a task that no replay looks at may live all the same.
-- Children are looked up one parent after the other, as in `replay/count`.
SELECT asked.root, gone.id
FROM unnest($2::uuid[]) AS asked (root)
CROSS JOIN LATERAL (
    WITH RECURSIVE family (id) AS (
        SELECT asked.root
        UNION
        SELECT child.id
        FROM family f
        CROSS JOIN LATERAL (
            SELECT s.id FROM task_spec s
            WHERE s.replay_of = f.id
            ORDER BY s.created_at, s.id
            OFFSET 0) AS child
    ), member (id, stays) AS MATERIALIZED (
        -- NULL is a root that is gone.
        SELECT f.id, (
            SELECT (o.profile = 'inference' AND o.finished_at <= $1::timestamptz) IS NOT TRUE
                OR {undecided:o}
            FROM task_state o WHERE o.id = f.id)
        FROM family f
    )
    SELECT m.id FROM member m
    WHERE m.stays IS NOT NULL AND NOT EXISTS (SELECT 1 FROM member other WHERE other.stays)
) AS gone
