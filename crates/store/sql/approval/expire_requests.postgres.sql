-- Requests that nobody decided about in time. Those that somebody decides right now are skipped.
UPDATE approval SET status = 'expired', decided_at = $1
WHERE id IN (
    SELECT id FROM approval
    WHERE status = 'open' AND expires_at IS NOT NULL AND expires_at <= $1 AND kind = 'replay'
    ORDER BY expires_at
    LIMIT $2
    FOR UPDATE SKIP LOCKED)
RETURNING id
