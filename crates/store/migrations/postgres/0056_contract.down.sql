SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

DROP TRIGGER agent_renews_the_registry ON agent;
DROP FUNCTION windlass_renew_registry();
DROP TABLE registry;
DROP TRIGGER agent_can_be_read ON agent;
DROP FUNCTION windlass_check_agent();
DROP FUNCTION windlass_agent_problem(agent);
DROP FUNCTION windlass_executor_problem(jsonb);
DROP FUNCTION windlass_name_list_problem(jsonb);

CREATE OR REPLACE FUNCTION windlass_begin_message() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    IF NEW.status = 'dead_lettered' THEN
        IF NOT EXISTS (SELECT 1 FROM dead_letter WHERE message_id = NEW.id) THEN
            RAISE EXCEPTION 'windlass: message % has no dead letter', NEW.id
                USING HINT = 'A message begins pending.';
        END IF;
    ELSIF NEW.status <> 'pending' OR NEW.deliveries <> 0 THEN
        RAISE EXCEPTION 'windlass: a message begins pending, and nobody has had it';
    ELSE
        INSERT INTO inbox (agent, opened_at) VALUES (NEW.to_agent, NEW.created_at)
        ON CONFLICT (agent) DO NOTHING;
    END IF;
    RETURN NEW;
END $$;
