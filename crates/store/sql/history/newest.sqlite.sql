-- The last transition; they are numbered from 1.
SELECT 0, seq FROM task_history
WHERE seq > 0
ORDER BY seq DESC
LIMIT 1
