-- A token's digest. The same call again finds its own row.
INSERT INTO approval_token (id, approval_id, task_id, approver, digest, issued_by, issued_at,
                            expires_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT (id) DO NOTHING
