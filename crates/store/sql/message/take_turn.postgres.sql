-- transition: pending -> delivered, the head of a conversing agent's inbox.
-- Guarded by a conversation that goes on, and by its row of inbox: a statement before this one has
-- locked or made it in this transaction, or somebody else has it, and then nothing is taken.
UPDATE message SET status = 'delivered', deliveries = deliveries + 1, lease_id = $2::uuid,
    lease_expires_at = $3::timestamptz, handled_by = $4::text, delivered_at = $5::timestamptz,
    converses = TRUE
WHERE id = (
    SELECT h.id FROM message h
    WHERE h.to_agent = $1::text AND h.status = 'pending' AND h.due_at <= $5::timestamptz
      AND (h.expires_at IS NULL OR h.expires_at > $5)
    ORDER BY h.priority DESC, h.created_at, h.id
    LIMIT 1)
  AND status = 'pending'
  AND NOT EXISTS (SELECT 1 FROM message d WHERE d.to_agent = $1 AND d.status = 'delivered')
  AND EXISTS (
    SELECT 1 FROM inbox i
    WHERE i.agent = $1 AND pg_current_xact_id()::xid IN (i.xmax, i.xmin))
RETURNING {message_returned}
