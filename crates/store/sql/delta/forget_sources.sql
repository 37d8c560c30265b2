-- Nobody asks for the deltas of an attempt that has been over for a while.
DELETE FROM delta_source
WHERE task_id IN (
    SELECT d.task_id FROM delta_source d
    WHERE d.started_at <= $1::timestamptz AND NOT EXISTS (
        SELECT 1 FROM task_state s
        WHERE s.id = d.task_id AND s.attempt = d.attempt
          AND (s.finished_at IS NULL OR s.finished_at > $1::timestamptz))
    LIMIT $2::bigint)
RETURNING task_id
