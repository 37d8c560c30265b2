-- The approver's token before this one is good no longer.
UPDATE approval_token SET revoked_at = $4
WHERE approval_id = $1 AND approver = $2 AND id <> $3 AND spent_at IS NULL AND revoked_at IS NULL
