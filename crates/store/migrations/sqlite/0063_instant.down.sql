-- Times are integers of milliseconds here: nothing to undo.
SELECT 1;
