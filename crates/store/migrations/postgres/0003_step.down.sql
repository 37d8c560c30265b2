DROP TABLE step_expiry_position;
DROP TABLE step;
DROP TABLE step_transition;
DROP FUNCTION windlass_check_step();
DROP TYPE step_status;
