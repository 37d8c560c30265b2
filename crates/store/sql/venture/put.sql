INSERT INTO venture (name, portfolio, created_at, updated_at)
VALUES ($1::text, $2::text, $3::timestamptz, $3::timestamptz)
ON CONFLICT (name) DO UPDATE
SET portfolio = excluded.portfolio, updated_at = excluded.updated_at
