-- What was told, and is looked for later. The digest of the checkpoint that came with a step's end:
-- the same call again is told from one that brings another checkpoint (only steps that must not run
-- twice end by a call of their own). And whose a thing was from an act on: whoever is assigned next
-- wipes nobody out.
ALTER TABLE step ADD COLUMN checkpoint_digest TEXT;
ALTER TABLE trouble_note ADD COLUMN assignee TEXT;
ALTER TABLE dead_letter_note ADD COLUMN assignee TEXT;
