-- A send by a known way is one statement, and its own transaction: the lock of a conversation and
-- the look at what lies before the message are a function, whose statements see whatever was
-- committed until the lock was had. As a statement before the send it took BEGIN, COMMIT and their
-- answers along.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

DO $migration$
BEGIN
EXECUTE replace($functions$
CREATE FUNCTION here.windlass_may_converse(whom text, moment timestamptz) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    -- Nobody waits for the row: whoever has it is beginning a conversation.
    PERFORM 1 FROM here.inbox i WHERE i.agent = whom FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN FALSE;
    END IF;
    RETURN NOT EXISTS (
            SELECT 1 FROM here.message d WHERE d.to_agent = whom AND d.status = 'delivered')
        AND NOT EXISTS (
            SELECT 1 FROM here.message h
            WHERE h.to_agent = whom AND h.status = 'pending' AND h.due_at <= moment
              AND (h.expires_at IS NULL OR h.expires_at > moment));
END $$;
$functions$, 'here.', quote_ident(current_schema()) || '.');
END $migration$;
