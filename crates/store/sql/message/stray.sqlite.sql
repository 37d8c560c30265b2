-- What lies in inboxes that nobody reads: of names that no agent has, and of archived agents. CROSS
-- keeps the order, such inboxes first, and the index leaves out what has ended, so that neither
-- what others have in theirs nor what an archived agent was told before is looked at.
SELECT {message_columns} FROM inbox i LEFT JOIN agent a ON a.name = i.agent
CROSS JOIN message m INDEXED BY message_inbox
    ON m.to_agent = i.agent AND m.status = 'pending'
WHERE a.name IS NULL OR a.archived_at IS NOT NULL
LIMIT $1
