ALTER TABLE step DROP COLUMN checkpoint_digest;
ALTER TABLE trouble_note DROP COLUMN assignee;
ALTER TABLE dead_letter_note DROP COLUMN assignee;
