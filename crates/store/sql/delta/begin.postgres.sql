-- This node has the deltas of the attempt from now on. Guarded by the change that the same
-- transaction has just made: an attempt that was lost has no source.
WITH clock AS MATERIALIZED (
    SELECT coalesce($1::timestamptz, date_trunc('milliseconds', clock_timestamp())) AS now
)
INSERT INTO delta_source (task_id, attempt, node_id, started_at)
SELECT s.id, s.attempt, i.node_id, clock.now
FROM clock, unnest($2::uuid[], $3::uuid[], $4::uuid[]) AS i (id, change_id, node_id)
JOIN task_state s ON s.id = i.id AND s.change_id = i.change_id
ON CONFLICT (task_id) DO UPDATE
SET attempt = excluded.attempt, node_id = excluded.node_id, started_at = excluded.started_at,
    wanted_until = NULL, total = NULL
