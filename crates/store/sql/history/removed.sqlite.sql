-- The last place in the log that retention has removed.
SELECT 0, seq FROM log_removed
