-- Adds what came since to the tally, at most $1 events; the position moves in the same transaction.
INSERT INTO task_tally (status, ended)
SELECT to_status, count(*) FROM task_history
WHERE seq > (SELECT seq FROM task_tally_position)
  AND seq <= (SELECT seq + $1 FROM task_tally_position)
  AND to_status IN ({terminal})
GROUP BY to_status
ON CONFLICT (status) DO UPDATE SET ended = ended + excluded.ended
