-- The last place in the log that retention has removed.
SELECT xid, seq FROM log_removed
