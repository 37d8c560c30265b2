INSERT INTO node (id, url, version, started_at, expires_at)
VALUES ($1::uuid, $2::text, $3::text, $4::timestamptz, $5::timestamptz)
ON CONFLICT (id) DO UPDATE SET url = excluded.url, expires_at = excluded.expires_at
