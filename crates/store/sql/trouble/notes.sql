-- What was done and noted about one task, oldest first.
SELECT id, at, author, event, note, assignee FROM trouble_note
WHERE task_id = $1::uuid
ORDER BY at, id
LIMIT $2::bigint
