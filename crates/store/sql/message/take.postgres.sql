-- transition: pending -> delivered, the first of an inbox that nobody else is taking.
-- Guarded by its lease: a send may have given the handler something already.
UPDATE message SET status = 'delivered', deliveries = deliveries + 1, lease_id = $2::uuid,
    lease_expires_at = $3::timestamptz, handled_by = $4::text, delivered_at = $5::timestamptz
WHERE id = (
    SELECT h.id FROM message h
    WHERE h.to_agent = $1::text AND h.status = 'pending' AND h.due_at <= $5::timestamptz
      AND (h.expires_at IS NULL OR h.expires_at > $5)
    ORDER BY h.priority DESC, h.created_at, h.id
    LIMIT 1
    FOR UPDATE SKIP LOCKED)
  AND status = 'pending'
  AND NOT EXISTS (SELECT 1 FROM message d WHERE d.lease_id = $2 AND d.status = 'delivered')
RETURNING {message_returned}
