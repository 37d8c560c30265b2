-- What each pool has finished since $1.
SELECT queue, count(*) FROM task_state
WHERE profile = 'inference' AND finished_at IS NOT NULL AND finished_at > $1::timestamptz
GROUP BY queue
