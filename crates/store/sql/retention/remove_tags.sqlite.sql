DELETE FROM task_tag
WHERE (key, value, created_at, task_id) IN (
    SELECT t.key, t.value, s.created_at, s.id
    FROM task_spec s, json_each(s.tags) AS t
    WHERE s.id IN (SELECT value FROM json_each($1)))
