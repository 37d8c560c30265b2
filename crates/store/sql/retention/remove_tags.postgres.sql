DELETE FROM task_tag g
USING task_spec s, jsonb_each_text(s.tags) AS t
WHERE s.id = ANY ($1::uuid[]) AND g.key = t.key AND g.value = t.value
  AND g.created_at = s.created_at AND g.task_id = s.id
