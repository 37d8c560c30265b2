-- The family of a task that is about to run something: its root ($2 generations upwards at most, as
-- in `replay/root`), and, of a replay, when it was made: as a number of runs, unless that entry of
-- the log is kept elsewhere, and as a time.
WITH RECURSIVE line (id, origin, generation) AS (
    SELECT id, replay_of, 0 FROM task_spec WHERE id = $1
    UNION ALL
    SELECT s.id, s.replay_of, l.generation + 1
    FROM line l JOIN task_spec s ON s.id = l.origin
    WHERE l.generation < $2
)
SELECT (SELECT coalesce(origin, id) FROM line ORDER BY generation DESC LIMIT 1),
    CASE WHEN t.replay_of IS NOT NULL THEN
        (SELECT min(seq) FROM task_history WHERE task_id = $1 AND event = 'submit')
    END,
    t.created_at
FROM task_spec t WHERE t.id = $1
