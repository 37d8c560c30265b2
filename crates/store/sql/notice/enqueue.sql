-- Written with what it speaks of. The same id again changes nothing: the body of a transaction may
-- run twice.
INSERT INTO notice (id, kind, severity, subject_id, body, sealed, created_at, due_at)
VALUES ($1::uuid, $2::text, $3::text, $4::uuid, $5::jsonb, $6::jsonb, $7::timestamptz,
        $7::timestamptz)
ON CONFLICT (id) DO NOTHING
