-- Moved by task/fold_tally itself.
SELECT 1
