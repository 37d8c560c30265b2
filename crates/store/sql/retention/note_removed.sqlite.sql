-- The last place in the log that these tasks had, if nothing behind it was removed before.
UPDATE log_removed
SET seq = max(seq, coalesce((
    SELECT max(seq) FROM task_history WHERE task_id IN (SELECT value FROM json_each($1))), 0))
