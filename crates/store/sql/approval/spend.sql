-- A token is good for one decision.
UPDATE approval_token SET spent_at = $2
WHERE id = $1 AND spent_at IS NULL AND revoked_at IS NULL
