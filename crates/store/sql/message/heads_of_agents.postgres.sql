-- Those of these agents that have something to hand out, the most urgent first. Whoever converses
-- and is in a conversation is left out.
SELECT i.agent, {agent_handler}, {agent_converses} FROM inbox i JOIN agent a ON a.name = i.agent
JOIN message m ON m.id = (
    SELECT h.id FROM message h
    WHERE h.to_agent = i.agent AND h.status = 'pending' AND h.due_at <= $2::timestamptz
      AND (h.expires_at IS NULL OR h.expires_at > $2)
    ORDER BY h.priority DESC, h.created_at, h.id
    LIMIT 1)
WHERE a.archived_at IS NULL AND i.agent = ANY ($1::text[])
  AND NOT ({agent_converses} AND EXISTS (
      SELECT 1 FROM message d WHERE d.to_agent = i.agent AND d.status = 'delivered'))
ORDER BY m.priority DESC, m.created_at, m.id
LIMIT $3::bigint
