SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

DROP TRIGGER dead_letter_can_be_read ON dead_letter;
DROP FUNCTION windlass_check_letter();
DROP TRIGGER message_can_be_read ON message;
DROP FUNCTION windlass_check_sent();
DROP FUNCTION windlass_message_problem(message);
