ALTER TABLE step DROP COLUMN checkpoint_digest;
