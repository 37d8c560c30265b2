-- The steps that must not run twice and that a family's tasks began themselves: the root's ($1) and
-- those of all that repeat it, directly or not, $2 replays at most, without the task $3. Children
-- are looked up one parent after the other, as in `count`. Results are not read: a plan needs none.
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
