-- The number of the run that begins now. Between two entries of the log is room for a million of
-- them, so that the first entry of a task says which runs began after it was made.
SELECT max((SELECT coalesce(max(run), 0) + 1 FROM step WHERE run IS NOT NULL),
           (SELECT coalesce(max(seq), 0) * 1048576 FROM task_history))
