-- Who folds or mends counts is alone until the transaction ends: two who mend would add what is
-- missing twice, and two who fold would wait for each other's rows. Nobody else takes this lock.
SELECT pg_advisory_xact_lock(hashtextextended('windlass counts ' || current_schema(), 0)) IS NULL
