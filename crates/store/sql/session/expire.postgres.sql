-- Sessions that fell silent; those that are just being renewed are skipped.
UPDATE session SET closed_at = $1, close_reason = 'expired', node = NULL, updated_at = $1
WHERE id IN (
    SELECT id FROM session
    WHERE closed_at IS NULL AND expires_at <= $1
    ORDER BY expires_at
    LIMIT $2
    FOR UPDATE SKIP LOCKED)
RETURNING id
