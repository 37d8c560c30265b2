DROP TABLE signal;
DROP FUNCTION windlass_check_signal();
DROP TABLE wait;
DROP TYPE wait_kind;
