-- How far retention has made holes in the log; see PostgreSQL's.
CREATE TABLE log_removed (
    seq INTEGER NOT NULL
) STRICT;
INSERT INTO log_removed VALUES (0);
