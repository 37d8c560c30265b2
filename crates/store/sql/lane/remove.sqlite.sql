-- Lanes count for themselves, so those that hold nothing make counting slow when there are many:
-- all but the $1 newest of them go. One that is needed again is made again. The condition of the
-- index stands there word for word: SQLite would not see it otherwise.
DELETE FROM lane WHERE id IN (
    SELECT id FROM lane
    WHERE active = 0 AND pending = 0 AND id NOT IN (
        SELECT lane FROM task_state
        WHERE status IN ('waiting_for_approval', 'waiting', 'retry', 'failed', 'cancelled',
                         'stuck', 'poisoned')
          AND status IN ('waiting_for_approval', 'waiting'))
    ORDER BY id DESC
    LIMIT -1 OFFSET $1)
RETURNING id
