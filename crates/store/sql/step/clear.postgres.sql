-- Clears the results of finished tasks; the rows stay.
UPDATE step SET result = NULL, expired_at = $2
WHERE task_id = ANY ($1::uuid[]) AND status = 'done' AND expired_at IS NULL
  AND EXISTS (SELECT 1 FROM task_state st
              WHERE st.id = step.task_id AND st.finished_at <= $3::timestamptz)
RETURNING id
