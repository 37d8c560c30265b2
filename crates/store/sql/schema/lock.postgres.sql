-- Many nodes may start at once: one migrates, the others wait here and then find it done. However
-- long that takes: the limits on hot statements are not for migrations.
SET LOCAL statement_timeout = 0;
SET LOCAL lock_timeout = 0;
SELECT pg_advisory_xact_lock(7801934412);
