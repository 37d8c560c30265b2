-- The registry of agents, ventures and portfolios; migrations/postgres/0040_registry.up.sql says
-- more.

CREATE TABLE portfolio (
    name TEXT PRIMARY KEY NOT NULL CHECK (length(CAST(name AS BLOB)) BETWEEN 1 AND 255),
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    archived_at INTEGER
) STRICT, WITHOUT ROWID;

CREATE TABLE venture (
    name TEXT PRIMARY KEY NOT NULL CHECK (length(CAST(name AS BLOB)) BETWEEN 1 AND 255),
    portfolio TEXT CHECK (length(CAST(portfolio AS BLOB)) BETWEEN 1 AND 255),
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    archived_at INTEGER
) STRICT, WITHOUT ROWID;

ALTER TABLE agent ADD COLUMN role TEXT CHECK (length(CAST(role AS BLOB)) BETWEEN 1 AND 255);
ALTER TABLE agent ADD COLUMN parent TEXT
    CHECK (length(CAST(parent AS BLOB)) BETWEEN 1 AND 255);
ALTER TABLE agent ADD COLUMN venture TEXT
    CHECK (length(CAST(venture AS BLOB)) BETWEEN 1 AND 255);
ALTER TABLE agent ADD COLUMN portfolio TEXT
    CHECK (length(CAST(portfolio AS BLOB)) BETWEEN 1 AND 255);
ALTER TABLE agent ADD COLUMN queue TEXT CHECK (length(CAST(queue AS BLOB)) BETWEEN 1 AND 255);
ALTER TABLE agent ADD COLUMN worker_type TEXT
    CHECK (length(CAST(worker_type AS BLOB)) BETWEEN 1 AND 100);
ALTER TABLE agent ADD COLUMN executor TEXT CHECK (
    CASE WHEN executor IS NULL THEN TRUE WHEN NOT json_valid(executor) THEN FALSE
    ELSE coalesce(executor ->> 'type', '') IN ('in_process', 'session', 'command', 'webhook') END);
ALTER TABLE agent ADD COLUMN authority TEXT NOT NULL DEFAULT '{}' CHECK (
    CASE WHEN NOT json_valid(authority) THEN FALSE
    WHEN json_type(authority) <> 'object' THEN FALSE
    ELSE json_remove(authority, '$.agents', '$.ventures') = '{}'
        AND coalesce(json_type(authority, '$.agents'), 'array') = 'array'
        AND coalesce(json_type(authority, '$.ventures'), 'array') = 'array' END);
ALTER TABLE agent ADD COLUMN archived_at INTEGER;

CREATE INDEX agent_parent ON agent (parent) WHERE parent IS NOT NULL;

-- Who is above whom, however many stand between. A trigger may not say WITH itself.
CREATE VIEW agent_line AS
WITH RECURSIVE line (name, above) AS (
    SELECT name, parent FROM agent WHERE parent IS NOT NULL
    UNION
    SELECT line.name, a.parent FROM line JOIN agent a ON a.name = line.above
    WHERE a.parent IS NOT NULL)
SELECT name, above FROM line;

CREATE TRIGGER agent_is_not_above_itself AFTER INSERT ON agent WHEN NEW.parent IS NOT NULL
BEGIN
    SELECT RAISE(ABORT, 'windlass: an agent must not be above itself')
    FROM agent_line WHERE name = NEW.name AND above = NEW.name;
END;
CREATE TRIGGER agent_comes_not_above_itself AFTER UPDATE OF parent ON agent
WHEN NEW.parent IS NOT NULL
BEGIN
    SELECT RAISE(ABORT, 'windlass: an agent must not be above itself')
    FROM agent_line WHERE name = NEW.name AND above = NEW.name;
END;
