-- The same as `begun`, of one key alone: whoever is about to run a step waits for this.
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
SELECT begun.* FROM (SELECT id FROM family LIMIT $2::bigint + 1) AS member
CROSS JOIN LATERAL (
    SELECT o.id, o.task_id, o.name, o.inputs_hash, o.occurrence, o.seq, o.run, o.status, o.effect,
        o.ended_at
    FROM step o
    WHERE o.task_id = member.id AND NOT o.idempotent AND o.copied_from IS NULL
        AND o.name = $4 AND o.inputs_hash = $5 AND o.occurrence = $6
    OFFSET 0) AS begun
WHERE member.id <> $3
