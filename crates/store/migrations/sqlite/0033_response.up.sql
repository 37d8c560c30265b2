-- Responses that their owner has deleted; migrations/postgres/0033_response.up.sql says more.
CREATE TABLE deleted_response (
    task_id TEXT PRIMARY KEY NOT NULL,
    deleted_by TEXT NOT NULL,
    deleted_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
