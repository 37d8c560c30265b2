-- This node has the deltas of the attempt from now on. Guarded by the change that the same
-- transaction has just made: an attempt that was lost has no source.
INSERT INTO delta_source (task_id, attempt, node_id, started_at)
SELECT id, attempt, $4, :now FROM task_state WHERE id = $2 AND change_id = $3
ON CONFLICT (task_id) DO UPDATE
SET attempt = excluded.attempt, node_id = excluded.node_id, started_at = excluded.started_at,
    wanted_until = NULL, total = NULL
