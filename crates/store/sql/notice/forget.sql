-- Notices that ended long ago, one way or the other.
DELETE FROM notice WHERE id IN (
    SELECT id FROM notice
    WHERE (delivered_at IS NOT NULL OR given_up_at IS NOT NULL) AND created_at <= $1::timestamptz
    ORDER BY created_at
    LIMIT $2::bigint)
RETURNING id
