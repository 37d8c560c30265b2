-- Nothing was done here: nothing to undo.
SELECT 1;
