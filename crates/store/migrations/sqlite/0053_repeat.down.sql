-- SQL submits on PostgreSQL only.
SELECT 1;
