-- The next steps of a task: at most $3 of them, as long as what was written in them has at most $4
-- bytes; the first comes whatever its size. Only places and sizes go through the sums, so nothing
-- big is copied that is not shown. Beside each: whether these are all, and their bytes.
WITH sized AS (
    SELECT seq, COALESCE(OCTET_LENGTH(CAST(result AS text)), 0)
        + COALESCE(OCTET_LENGTH(CAST(inputs AS text)), 0)
        + COALESCE(OCTET_LENGTH(CAST(error AS text)), 0) AS size
    FROM step WHERE task_id = $1 AND seq {beyond} $2
    ORDER BY seq {direction} LIMIT CAST($3 AS bigint) + 1),
summed AS (
    SELECT seq, ROW_NUMBER() OVER so_far AS n, SUM(size) OVER so_far AS bytes
    FROM sized WINDOW so_far AS (ORDER BY seq {direction} ROWS UNBOUNDED PRECEDING)),
shown AS (
    SELECT seq, bytes FROM summed
    WHERE n <= CAST($3 AS bigint) AND (n = 1 OR bytes <= CAST($4 AS bigint)))
SELECT {step_columns},
    (SELECT COUNT(*) FROM sized) = (SELECT COUNT(*) FROM shown), (SELECT MAX(bytes) FROM shown)
FROM step WHERE task_id = $1 AND seq IN (SELECT seq FROM shown) ORDER BY seq {direction}
