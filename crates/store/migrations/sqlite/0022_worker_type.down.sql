CREATE TABLE limit_rule_next (
    scope TEXT NOT NULL
        CHECK (scope IN ('global', 'portfolio', 'venture', 'stage', 'agent', 'queue')),
    name TEXT NOT NULL DEFAULT '',
    max_active INTEGER CHECK (max_active BETWEEN 0 AND 1000000000),
    max_pending INTEGER CHECK (max_pending BETWEEN 0 AND 1000000000),
    rate_count INTEGER CHECK (rate_count BETWEEN 1 AND 1000000000),
    rate_ms INTEGER CHECK (rate_ms BETWEEN 1 AND 86400000),
    updated_at INTEGER NOT NULL,
    updated_by TEXT NOT NULL,
    PRIMARY KEY (scope, name),
    CHECK ((rate_count IS NULL) = (rate_ms IS NULL)),
    CHECK (scope <> 'global' OR name = '')
) STRICT, WITHOUT ROWID;
INSERT INTO limit_rule_next SELECT * FROM limit_rule WHERE scope <> 'worker_type';
DROP TABLE limit_rule;
ALTER TABLE limit_rule_next RENAME TO limit_rule;
UPDATE limit_version SET version = version + 1;

CREATE TRIGGER limit_rule_insert_is_told AFTER INSERT ON limit_rule BEGIN
    UPDATE limit_version SET version = version + 1;
END;
CREATE TRIGGER limit_rule_update_is_told AFTER UPDATE ON limit_rule BEGIN
    UPDATE limit_version SET version = version + 1;
END;
CREATE TRIGGER limit_rule_delete_is_told AFTER DELETE ON limit_rule BEGIN
    UPDATE limit_version SET version = version + 1;
END;
