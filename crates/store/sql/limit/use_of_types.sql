-- The most that one open session of each worker type holds now.
SELECT 'worker_type:' || worker_type, max(held), 0 FROM (
    SELECT s.worker_type, count(*) AS held
    FROM session s
    JOIN task_state st ON st.claimed_by = s.id::text
    WHERE s.closed_at IS NULL AND s.worker_type IS NOT NULL
      AND st.finished_at IS NULL AND st.lease_id IS NOT NULL
    GROUP BY s.id, s.worker_type) holder
GROUP BY worker_type
