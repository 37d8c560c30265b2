-- Agents; migrations/postgres/0009_agent.up.sql says more.

CREATE TABLE agent (
    name TEXT PRIMARY KEY NOT NULL,
    retry_policy TEXT NOT NULL DEFAULT '{}',
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    CONSTRAINT names_are_bounded CHECK (length(CAST(name AS BLOB)) BETWEEN 1 AND 255),
    CONSTRAINT policy_can_be_read CHECK (
        CASE WHEN NOT json_valid(retry_policy) THEN FALSE
        WHEN json_type(retry_policy) <> 'object' THEN FALSE
        ELSE json_remove(retry_policy, '$.max_retries', '$.backoff', '$.on_exhausted') = '{}'
            AND coalesce(json_type(retry_policy, '$.max_retries'), 'integer') = 'integer'
            AND coalesce(retry_policy ->> 'max_retries', 0) BETWEEN 0 AND 100
            AND coalesce(retry_policy ->> 'on_exhausted', 'failed') IN ('failed', 'poisoned')
            AND coalesce(json_type(retry_policy, '$.backoff'), 'object') = 'object' END)
) STRICT, WITHOUT ROWID;
