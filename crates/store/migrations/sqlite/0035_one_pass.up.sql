-- PostgreSQL only: SQLite has no statement triggers.
SELECT 1;
