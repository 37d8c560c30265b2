-- The same as `begun`, of one key alone: whoever is about to run a step waits for this.
WITH RECURSIVE family (id) AS (
    SELECT $1
    UNION
    SELECT s.id FROM family f JOIN task_spec s ON s.replay_of = f.id
)
SELECT o.id, o.task_id, o.name, o.inputs_hash, o.occurrence, o.seq, o.run, o.status, o.effect,
    o.ended_at
FROM (SELECT id FROM family LIMIT $2 + 1) AS member
CROSS JOIN step o ON o.task_id = member.id
WHERE member.id <> $3 AND NOT o.idempotent AND o.copied_from IS NULL
  AND o.name = $4 AND o.inputs_hash = $5 AND o.occurrence = $6
