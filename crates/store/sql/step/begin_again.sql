-- A step that must not run twice begins once more, because it had no effect or a person allowed
-- it; its task and its family are locked. What its last run told is forgotten.
UPDATE step
SET status = 'begun', error = NULL, effect = NULL, ended_at = NULL, checkpoint_digest = NULL,
    lease_id = $3, attempt = $4, actor = $5, run = {next_run}
WHERE task_id = $1 AND id = $2
RETURNING run
