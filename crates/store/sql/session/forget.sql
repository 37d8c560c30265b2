-- Sessions that were closed before $1. The history names them by id and keeps what they did.
DELETE FROM session
WHERE id IN (
    SELECT id FROM session
    WHERE closed_at IS NOT NULL AND closed_at < $1::timestamptz
    ORDER BY closed_at
    LIMIT $2::bigint)
RETURNING id
