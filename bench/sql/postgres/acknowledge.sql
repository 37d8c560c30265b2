UPDATE floor_message SET status = 'acknowledged', finished_at = now(), lease_expires_at = NULL
WHERE id = $1::uuid
