-- Removes every message and every dead letter. There is no way back but a backup.
DROP TABLE dead_letter_note, dead_letter, inbox, message, message_transition;
DROP FUNCTION windlass_check_dead_letter();
DROP FUNCTION windlass_check_message();
DROP FUNCTION windlass_begin_message();
DROP TYPE message_status;
