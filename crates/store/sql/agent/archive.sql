-- $2 is when, or NULL: it is one of those that are there again.
UPDATE agent SET archived_at = $2::timestamptz, updated_at = $3::timestamptz
WHERE name = $1::text
