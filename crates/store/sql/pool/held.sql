-- What each provider holds of each pool.
SELECT queue, claimed_by, count(*) FROM task_state
WHERE claimed_by IS NOT NULL AND finished_at IS NULL AND profile = 'inference'
GROUP BY queue, claimed_by
