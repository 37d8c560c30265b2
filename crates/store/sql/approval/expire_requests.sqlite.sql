-- Requests that nobody decided about in time. The planner would read all that are open.
UPDATE approval SET status = 'expired', decided_at = $1
WHERE id IN (
    SELECT id FROM approval INDEXED BY approval_expiry
    WHERE status = 'open' AND expires_at IS NOT NULL AND expires_at <= $1 AND kind = 'replay'
    ORDER BY expires_at
    LIMIT $2)
RETURNING id
