-- There is one writer.
SELECT 1 WHERE FALSE
