-- What SQLite refuses it says without figures.
SELECT 1;
