DROP INDEX session_unsettled;
ALTER TABLE session DROP COLUMN settled_at;
