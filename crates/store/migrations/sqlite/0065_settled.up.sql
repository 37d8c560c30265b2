-- A session's end and its tasks' way back are two transactions. Somebody looks at every closed
-- session once more, a little later, and notes that here: nothing stays with one that is gone.
-- Those that were closed before this are looked at, too.
ALTER TABLE session ADD COLUMN settled_at INTEGER;
CREATE INDEX session_unsettled ON session (closed_at)
    WHERE closed_at IS NOT NULL AND settled_at IS NULL;
