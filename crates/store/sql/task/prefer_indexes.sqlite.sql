-- For PostgreSQL.
SELECT 1
