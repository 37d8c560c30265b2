-- The same question of the same task, if it was approved before.
SELECT {approval_columns} FROM approval a
WHERE a.task_id = $1 AND a.gate = $2 AND a.digest = $3 AND a.occurrence = $4
  AND a.kind = 'gate' AND a.status = 'approved'
LIMIT 1
