DROP TABLE log_removed;
