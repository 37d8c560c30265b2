-- The same request for the same task, if nobody has decided about it yet.
SELECT {approval_columns} FROM approval a
WHERE a.task_id = $1 AND a.digest = $2 AND a.kind = 'replay' AND a.status = 'open'
ORDER BY a.created_at
LIMIT 1
