-- There is one writer.
SELECT 1
