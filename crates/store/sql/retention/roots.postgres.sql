-- The roots of the families that the tasks $1 belong to, each once. Upwards from all of them at the
-- same time: UNION keeps one of each ancestor, so a task is passed once, however many repeat it. A
-- root that is gone is still named by its replays, as in `replay/root`.
WITH RECURSIVE line (id, origin) AS (
    SELECT s.id, s.replay_of FROM task_spec s WHERE s.id = ANY ($1::uuid[])
    UNION
    SELECT s.id, s.replay_of FROM line l JOIN task_spec s ON s.id = l.origin
)
SELECT DISTINCT coalesce(l.origin, l.id) FROM line l
WHERE l.origin IS NULL OR (SELECT 1 FROM task_spec o WHERE o.id = l.origin) IS NULL
