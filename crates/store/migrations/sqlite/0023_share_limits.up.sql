-- Nothing to share: SQLite has one writer. PostgreSQL has functions here.
SELECT 1;
