-- What lies in inboxes that nobody reads: of names that no agent has, and of archived agents. Such
-- inboxes are found first, so that what others have in theirs is not looked at.
SELECT {message_columns} FROM message m
WHERE m.status = 'pending' AND m.to_agent = ANY (ARRAY(
    SELECT i.agent FROM inbox i LEFT JOIN agent a ON a.name = i.agent
    WHERE a.name IS NULL OR a.archived_at IS NOT NULL))
LIMIT $1::bigint
FOR UPDATE SKIP LOCKED
