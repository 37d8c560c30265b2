-- $2 is nothing: a portfolio belongs to no other.
INSERT INTO portfolio (name, created_at, updated_at)
SELECT $1::text, $3::timestamptz, $3::timestamptz WHERE $2::text IS NULL
ON CONFLICT (name) DO UPDATE SET updated_at = excluded.updated_at
