-- Finished tasks that a retention rule covers: $1 is the latest end that is old enough. A task that
-- a person has still to look at stays. So does one that others repeat, because they find their
-- family by it and lock it by its root, and one of whose family anything stays: what it ran must be
-- known to whoever repeats that. Only a replay is asked for its family, up to the root and down
-- again, as far as replays themselves look ($3, see `replay/root` and `replay/begun`).
SELECT id FROM task_state
WHERE profile = 'inference' AND finished_at IS NOT NULL AND finished_at <= $1
  AND coalesce((SELECT closed_at IS NOT NULL FROM trouble WHERE task_id = task_state.id), TRUE)
  AND (SELECT 1 FROM task_spec r WHERE r.replay_of = task_state.id LIMIT 1) IS NULL
  AND (
      WITH RECURSIVE line (id, origin, generation) AS (
          SELECT s.id, s.replay_of, 0 FROM task_spec s
          WHERE s.id = task_state.id AND s.replay_of IS NOT NULL
          UNION ALL
          SELECT s.id, s.replay_of, l.generation + 1
          FROM line l JOIN task_spec s ON s.id = l.origin
          WHERE l.generation < $3::bigint
      ), root (id) AS (
          SELECT coalesce(origin, id) FROM line ORDER BY generation DESC LIMIT 1
      ), family (id) AS (
          SELECT id FROM root
          UNION
          SELECT child.id
          FROM family f
          CROSS JOIN LATERAL (
              SELECT s.id FROM task_spec s
              WHERE s.replay_of = f.id
              ORDER BY s.created_at, s.id
              LIMIT $3::bigint + 1) AS child
      )
      SELECT 1 FROM (SELECT id FROM family LIMIT $3::bigint + 1) AS member
      WHERE (SELECT o.finished_at IS NULL OR o.finished_at > $1
             FROM task_state o WHERE o.id = member.id)
         OR (SELECT t.closed_at IS NULL FROM trouble t WHERE t.task_id = member.id)
      LIMIT 1) IS NULL
ORDER BY finished_at
LIMIT $2
FOR UPDATE SKIP LOCKED
