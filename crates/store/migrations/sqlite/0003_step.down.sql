DROP TABLE step_expiry_position;
DROP TABLE step;
DROP TABLE step_transition;
