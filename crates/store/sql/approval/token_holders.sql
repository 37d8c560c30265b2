-- Who has a token for the question $1 that is good at $2, in the order in which they got it, at
-- most $3.
SELECT approver, expires_at FROM approval_token
WHERE approval_id = $1 AND spent_at IS NULL AND revoked_at IS NULL AND expires_at > $2
ORDER BY issued_at, id
LIMIT $3::bigint
