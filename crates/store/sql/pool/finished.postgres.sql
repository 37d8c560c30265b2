-- What each pool has finished since $1, and how many tokens it took, as far as was told. The sum is
-- bounded like one of its numbers: what somebody wrote by hand must not break the list.
SELECT queue, count(*), least(sum(
    CASE WHEN jsonb_typeof(usage -> 'total_tokens') = 'number'
         THEN (usage ->> 'total_tokens')::numeric END), 9007199254740991)::bigint
FROM task_state
WHERE profile = 'inference' AND finished_at IS NOT NULL AND finished_at > $1::timestamptz
GROUP BY queue
