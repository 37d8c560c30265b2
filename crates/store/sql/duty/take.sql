-- Takes or keeps a duty. No row: another node has it.
INSERT INTO duty (name, node, expires_at)
VALUES ($1::text, $2::uuid, $3::timestamptz)
ON CONFLICT (name) DO UPDATE SET node = excluded.node, expires_at = excluded.expires_at
WHERE duty.node = excluded.node OR duty.expires_at <= $4::timestamptz
RETURNING name
