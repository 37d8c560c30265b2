-- The ids that were mended stay: the old ones said nothing.
DROP TRIGGER dead_letter_note_can_be_read;
DROP TRIGGER dead_letter_can_be_read;
DROP TRIGGER message_stays_readable;
DROP TRIGGER message_can_be_read;
