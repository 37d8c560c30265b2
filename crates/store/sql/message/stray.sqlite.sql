-- What lies in inboxes that nobody reads: of names that no agent has, and of archived agents.
SELECT {message_columns} FROM inbox i LEFT JOIN agent a ON a.name = i.agent
JOIN message m ON m.to_agent = i.agent AND m.status = 'pending'
WHERE a.name IS NULL OR a.archived_at IS NOT NULL
LIMIT $1
