-- The digest of the checkpoint that came with a step's end, so that the same call again is told from
-- one that brings another checkpoint. Only steps that must not run twice end by a call of their own.
ALTER TABLE step ADD COLUMN checkpoint_digest TEXT;
