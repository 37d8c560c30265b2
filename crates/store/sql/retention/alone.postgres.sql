-- Those of the tasks $1 that repeat nothing and that nothing repeats, and whether each may go: no
-- person has anything to look at or to decide any more, and nobody waits for its end.
SELECT s.id,
    NOT {undecided:s}
FROM task_spec s
WHERE s.id = ANY ($1::uuid[]) AND s.replay_of IS NULL
  AND (SELECT 1 FROM task_spec r WHERE r.replay_of = s.id LIMIT 1) IS NULL
