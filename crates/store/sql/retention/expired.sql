-- Finished tasks that a retention rule covers, in the order of their ends: $1 is the latest end
-- that is old enough, $2 and $3 are the place of the last task that was looked at, $4 how many at
-- most. The partial index alone says which they are. Whether one stays all the same is asked
-- afterwards (`alone`, `family`), so that reading a page costs the same whatever stays.
SELECT id, finished_at FROM task_state
WHERE profile = 'inference' AND finished_at IS NOT NULL
  AND finished_at <= $1::timestamptz AND finished_at >= $2::timestamptz
  AND (finished_at > $2::timestamptz OR id > $3::uuid)
ORDER BY finished_at, id
LIMIT $4::bigint
