-- Its notice follows by a trigger. The same id again changes nothing.
INSERT INTO alert (id, type, severity, task_id, message, created_at)
VALUES ($1::uuid, $2::text, $3::text, $4::uuid, $5::text, $6::timestamptz)
ON CONFLICT (id) DO NOTHING
