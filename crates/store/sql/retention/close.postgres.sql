-- The end of the transaction closes it.
SELECT 1
