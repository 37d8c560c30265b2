-- transition: pending -> delivered, the first of an inbox.
UPDATE message SET status = 'delivered', deliveries = deliveries + 1, lease_id = $2,
    lease_expires_at = $3, handled_by = $4, delivered_at = $5
WHERE id = (
    SELECT h.id FROM message h
    WHERE h.to_agent = $1 AND h.status = 'pending' AND h.due_at <= $5
      AND (h.expires_at IS NULL OR h.expires_at > $5)
    ORDER BY h.priority DESC, h.created_at, h.id
    LIMIT 1)
RETURNING {message_returned}
