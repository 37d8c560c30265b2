-- Requests that nobody decided about in time. Those that somebody decides right now are skipped.
-- An array, because a join may be planned as a walk over all that ever was asked.
UPDATE approval SET status = 'expired', decided_at = $1
WHERE id = ANY (ARRAY(
    SELECT id FROM approval
    WHERE status = 'open' AND expires_at IS NOT NULL AND expires_at <= $1 AND kind = 'replay'
    ORDER BY expires_at
    LIMIT $2
    FOR UPDATE SKIP LOCKED))
RETURNING id
