-- Rules or pauses are about to change: until the commit nobody else changes them.
UPDATE limit_version SET version = version + 1 RETURNING version
