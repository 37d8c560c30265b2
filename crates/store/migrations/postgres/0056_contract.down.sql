SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

DROP TRIGGER agent_can_be_read ON agent;
DROP FUNCTION windlass_check_agent();
DROP FUNCTION windlass_agent_problem(agent);
DROP FUNCTION windlass_executor_problem(jsonb);
DROP FUNCTION windlass_name_list_problem(jsonb);
