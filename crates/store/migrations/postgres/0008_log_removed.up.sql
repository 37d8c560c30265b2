-- How far retention has made holes in the log: the last place that it removed. A reader that
-- resumes before it would miss what is gone, and is told so.
CREATE TABLE log_removed (
    xid bigint NOT NULL,
    seq bigint NOT NULL
);
INSERT INTO log_removed VALUES (0, 0);
