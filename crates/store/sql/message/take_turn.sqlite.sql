-- transition: pending -> delivered, the head of a conversing agent's inbox.
-- Guarded by a conversation that goes on; there is one writer.
UPDATE message SET status = 'delivered', deliveries = deliveries + 1, lease_id = $2,
    lease_expires_at = $3, handled_by = $4, delivered_at = $5,
    converses = TRUE
WHERE id = (
    SELECT h.id FROM message h
    WHERE h.to_agent = $1 AND h.status = 'pending' AND h.due_at <= $5
      AND (h.expires_at IS NULL OR h.expires_at > $5)
    ORDER BY h.priority DESC, h.created_at, h.id
    LIMIT 1)
  AND status = 'pending'
  AND NOT EXISTS (SELECT 1 FROM message d WHERE d.to_agent = $1 AND d.status = 'delivered')
RETURNING {message_returned}
