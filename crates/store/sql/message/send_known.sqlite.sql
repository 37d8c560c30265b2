-- SQLite has no flights to save: never run.
SELECT 1 WHERE FALSE
