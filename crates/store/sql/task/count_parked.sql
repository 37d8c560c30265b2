-- How many tasks are parked. The first condition is that of the index, word for word: SQLite
-- would not see that the second implies it, and read every task.
SELECT status, count(*) FROM task_state
WHERE status IN ('waiting_for_approval', 'waiting', 'retry', 'failed', 'cancelled', 'stuck',
                 'poisoned')
  AND status IN ('waiting_for_approval', 'waiting')
GROUP BY status
