-- There is one writer.
SELECT $1 IS NULL
