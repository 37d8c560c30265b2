CREATE TABLE IF NOT EXISTS schema_version (
    version bigint PRIMARY KEY,
    name text NOT NULL,
    breaking boolean NOT NULL,
    checksum text NOT NULL,
    applied_at timestamptz NOT NULL
)
