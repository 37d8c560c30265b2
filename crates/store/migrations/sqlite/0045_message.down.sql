DROP TABLE dead_letter_note;
DROP TABLE dead_letter;
DROP TABLE inbox;
DROP TABLE message;
DROP TABLE message_transition;
