-- Removes what was told to these tasks, and what they took, if they have finished long ago.
WITH ended AS (
    SELECT id FROM task_state WHERE id = ANY ($1::uuid[]) AND finished_at <= $2::timestamptz)
DELETE FROM signal WHERE id IN (
    SELECT s.id FROM ended JOIN signal s ON s.taken_by = ended.id
    UNION ALL
    SELECT s.id FROM ended JOIN signal s ON s.task_id = ended.id AND s.taken_by IS NULL)
RETURNING id
