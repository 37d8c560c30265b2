-- Written anew as a whole.
INSERT INTO pause (scope, name, mode, reason, since, by)
VALUES ($1::text, $2::text, $3::text, $4::text, $5::timestamptz, $6::text)
ON CONFLICT (scope, name) DO UPDATE
SET mode = excluded.mode, reason = excluded.reason, since = excluded.since, by = excluded.by
