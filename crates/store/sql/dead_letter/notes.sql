-- What was done and noted about one dead letter, oldest first.
SELECT id, at, author, event, note, assignee FROM dead_letter_note
WHERE message_id = $1::uuid
ORDER BY at, id
LIMIT $2::bigint
