-- Signals of one key, and waits for them, come one after the other: otherwise a signal and a wait
-- that begin at once would not see each other.
SELECT pg_advisory_xact_lock(hashtextextended('windlass signal ' || $1::text, 0)) IS NULL
