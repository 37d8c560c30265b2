-- Locks those of the tasks $1 that nobody holds; whoever makes a replay of one locks it likewise.
SELECT id FROM task_state
WHERE id = ANY ($1::uuid[])
ORDER BY id
FOR UPDATE SKIP LOCKED
