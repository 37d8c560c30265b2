UPDATE floor_state
SET status = 'running', from_status = status, event = 'claim', change_id = ?3, actor = ?4,
    ready = 0, attempt = attempt + 1, lease_id = ?2, lease_expires_at = ?5 + 60000,
    claim_id = ?6, claimed_by = ?4, claimed_at = ?5, started_at = ?5, entered_at = ?5,
    updated_at = ?5
WHERE rowid = ?1
