-- Many nodes may start at once: one migrates, the others wait here and then find it done.
SELECT 1 FROM (SELECT pg_advisory_xact_lock(7801934412)) AS locked
