-- A token by its id, which is no secret.
SELECT approval_id, approver, digest, expires_at, spent_at, revoked_at FROM approval_token
WHERE id = $1
