-- Times are integers of milliseconds here: nothing to do.
SELECT 1;
