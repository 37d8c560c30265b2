-- Whoever has this row may begin a conversation of the agent; nobody waits for it.
SELECT agent FROM inbox WHERE agent = $1::text FOR UPDATE SKIP LOCKED
