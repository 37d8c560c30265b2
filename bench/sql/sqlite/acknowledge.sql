UPDATE floor_message SET status = 'acknowledged', finished_at = ?2, lease_expires_at = NULL
WHERE id = ?1
