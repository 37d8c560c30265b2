-- What became of a step; its task is locked.
UPDATE step
SET status = $3, result = $4, error = $5, effect = $6, lease_id = $7, attempt = $8, actor = $9,
    ended_at = $10, checkpoint_digest = $11, run = $12
WHERE task_id = $1 AND id = $2
