SELECT scope, name, max_active, max_pending, rate_count, rate_ms, updated_at, updated_by
FROM limit_rule
