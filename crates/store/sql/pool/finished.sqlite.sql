-- What each pool has finished since $1, and how many tokens it took, as far as was told. The sum is
-- bounded like one of its numbers, and made of floats: integers that overflow are an error.
SELECT queue, count(*), CAST(min(total(
    CASE WHEN json_type(usage, '$.total_tokens') = 'integer'
         THEN usage ->> '$.total_tokens' END), 9007199254740991) AS INTEGER)
FROM task_state
WHERE profile = 'inference' AND finished_at IS NOT NULL AND finished_at > $1
GROUP BY queue
