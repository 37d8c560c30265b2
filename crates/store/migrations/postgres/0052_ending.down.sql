ALTER TABLE message DROP COLUMN ending_digest;
