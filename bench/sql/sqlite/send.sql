INSERT INTO floor_message (id, from_agent, to_agent, type, priority, payload, request_digest,
    sent_by, status, created_at, due_at, deliveries, lease_id, lease_expires_at, handled_by,
    delivered_at, converses)
VALUES (?1, ?2, 'ceo', 'note', 0, ?3, ?7, ?2, 'delivered', ?4, ?4, 1, ?5, ?4 + 60000, ?6, ?4, 1)
