-- PostgreSQL has had this since 0062 and before: nothing to do.
SELECT 1;
