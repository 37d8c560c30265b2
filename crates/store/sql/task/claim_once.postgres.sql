-- A call that is sent again may meet itself, on this node or on another: the later one waits for
-- the end of the first, and then sees what that took. Sorted, so that no two wait for each other.
SELECT pg_advisory_xact_lock(hashtextextended('windlass claim ' || claim, 0)) IS NULL
FROM unnest($1::uuid[]) AS claim
