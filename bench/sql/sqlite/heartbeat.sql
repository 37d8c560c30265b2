UPDATE floor_state
SET lease_expires_at = ?3 + 60000, last_heartbeat_at = ?3, updated_at = ?3
WHERE id = ?1 AND lease_id = ?2
