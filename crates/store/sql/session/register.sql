-- The same id again is the same session: it goes on with what is asked for now.
INSERT INTO session (id, name, worker_type, routes, slots, lease_ms, expires_at, created_at,
    updated_at)
VALUES ($1::uuid, $2::text, $3::text, $4::jsonb, $5::int, $6::bigint, $7::timestamptz,
    $8::timestamptz, $8::timestamptz)
ON CONFLICT (id) DO UPDATE SET
    name = excluded.name, worker_type = excluded.worker_type, routes = excluded.routes,
    slots = excluded.slots, lease_ms = excluded.lease_ms, expires_at = excluded.expires_at,
    updated_at = excluded.updated_at, closed_at = NULL, close_reason = NULL
RETURNING {session_columns}
