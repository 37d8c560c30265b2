UPDATE floor_state
SET status = 'completed', from_status = status, event = 'complete', change_id = ?3, actor = ?4,
    change_lease_id = lease_id, lease_id = NULL, lease_expires_at = NULL, result = ?5,
    entered_at = ?6, updated_at = ?6, finished_at = ?6
WHERE id = ?1 AND lease_id = ?2
