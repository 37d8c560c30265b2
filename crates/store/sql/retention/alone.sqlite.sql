-- Those of the tasks $1 that repeat nothing and that nothing repeats, and whether each may go: no
-- person has anything to look at or to decide any more, nobody waits for its end, and it is not the
-- task of the newest transition, whose place in the log must never be given out again.
SELECT s.id,
    NOT {undecided:s}
    AND s.id <> (
        SELECT task_id FROM task_history WHERE seq = (SELECT max(seq) FROM task_history))
FROM task_spec s
WHERE s.id IN (SELECT value FROM json_each($1)) AND s.replay_of IS NULL
  AND (SELECT 1 FROM task_spec r WHERE r.replay_of = s.id LIMIT 1) IS NULL
