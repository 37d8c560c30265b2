-- What waits in each pool, and since when the oldest does.
SELECT queue, count(*), min(entered_at) FROM task_state
WHERE profile = 'inference' AND status = 'pending'
GROUP BY queue
