-- The answer to a request. That of a gate is written by its task's transition.
UPDATE approval SET status = $2::approval_status, decided_at = $3
WHERE id = $1 AND status = 'open' AND kind = 'replay'
