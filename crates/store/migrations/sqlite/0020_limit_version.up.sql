-- One number says whether rules and pauses have changed;
-- migrations/postgres/0020_limit_version.up.sql says more. The store's own writer
-- counts by itself; the triggers are for everybody else.

CREATE TABLE limit_version (
    single INTEGER PRIMARY KEY DEFAULT 1 CHECK (single = 1),
    version INTEGER NOT NULL
) STRICT;
INSERT INTO limit_version (version) VALUES (1);

CREATE TRIGGER limit_rule_insert_is_told AFTER INSERT ON limit_rule BEGIN
    UPDATE limit_version SET version = version + 1;
END;
CREATE TRIGGER limit_rule_update_is_told AFTER UPDATE ON limit_rule BEGIN
    UPDATE limit_version SET version = version + 1;
END;
CREATE TRIGGER limit_rule_delete_is_told AFTER DELETE ON limit_rule BEGIN
    UPDATE limit_version SET version = version + 1;
END;
CREATE TRIGGER pause_insert_is_told AFTER INSERT ON pause BEGIN
    UPDATE limit_version SET version = version + 1;
END;
CREATE TRIGGER pause_update_is_told AFTER UPDATE ON pause BEGIN
    UPDATE limit_version SET version = version + 1;
END;
CREATE TRIGGER pause_delete_is_told AFTER DELETE ON pause BEGIN
    UPDATE limit_version SET version = version + 1;
END;
