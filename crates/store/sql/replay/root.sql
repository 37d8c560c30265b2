-- The task that all others of a family repeat, directly or not: upwards, $2 generations at most.
-- One that retention has removed is still named by its replays.
WITH RECURSIVE line (id, origin, generation) AS (
    SELECT id, replay_of, 0 FROM task_spec WHERE id = $1
    UNION ALL
    SELECT s.id, s.replay_of, l.generation + 1
    FROM line l JOIN task_spec s ON s.id = l.origin
    WHERE l.generation < $2
)
SELECT coalesce(origin, id) FROM line ORDER BY generation DESC LIMIT 1
