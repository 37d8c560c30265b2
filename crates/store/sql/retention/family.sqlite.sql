-- The tasks of the family whose root ($2) is asked for, if nothing of it stays: each ended at $1
-- or before, none is left for a person to look at, nobody waits for the end of one, and none has
-- the newest transition (see `alone`). A family goes as a whole or not at all, because whoever
-- repeats one of them must know what all have run. Each task is looked at once.
-- Unlike `replay/begun` this has no bound: a task that no replay looks at may live all the same.
WITH RECURSIVE family (id) AS (
    SELECT $2
    UNION
    SELECT s.id FROM family f JOIN task_spec s ON s.replay_of = f.id
), member (id, stays) AS MATERIALIZED (
    -- NULL is a root that is gone.
    SELECT f.id, (
        SELECT (o.profile = 'inference' AND o.finished_at <= $1) IS NOT TRUE
            OR {undecided:o}
            OR o.id = (
                SELECT task_id FROM task_history WHERE seq = (SELECT max(seq) FROM task_history))
        FROM task_state o WHERE o.id = f.id)
    FROM family f
)
SELECT $2, m.id FROM member m
WHERE m.stays IS NOT NULL AND NOT EXISTS (SELECT 1 FROM member other WHERE other.stays)
