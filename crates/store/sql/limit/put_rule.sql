-- Written anew as a whole.
INSERT INTO limit_rule (scope, name, max_active, max_pending, rate_count, rate_ms, updated_at,
                        updated_by)
VALUES ($1::text, $2::text, $3::bigint, $4::bigint, $5::bigint, $6::bigint, $7::timestamptz,
        $8::text)
ON CONFLICT (scope, name) DO UPDATE
SET max_active = excluded.max_active, max_pending = excluded.max_pending,
    rate_count = excluded.rate_count, rate_ms = excluded.rate_ms,
    updated_at = excluded.updated_at, updated_by = excluded.updated_by
