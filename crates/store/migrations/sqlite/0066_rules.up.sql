-- Nobody waits for a lock in the middle of a flight: SQLite has one writer. PostgreSQL has a
-- function here.
SELECT 1;
