-- Moves the position by at most $1, not beyond the last event; returns whether there is more. An
-- idle database is not written.
UPDATE task_tally_position AS p SET seq = min(p.seq + $1, (SELECT max(seq) FROM task_history))
WHERE p.seq < (SELECT max(seq) FROM task_history)
RETURNING seq < (SELECT max(h.seq) FROM task_history h)
