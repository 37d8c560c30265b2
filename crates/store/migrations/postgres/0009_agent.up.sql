-- Agents: for now how their tasks are retried; the registry adds columns. A task takes the policy
-- over at its submit, so nothing here reroutes what was submitted before.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

CREATE TABLE agent (
    -- Compared byte by byte, so that a page by name is the same everywhere.
    name text COLLATE "C" PRIMARY KEY,
    -- max_retries, backoff, on_exhausted: what is there is taken over.
    retry_policy jsonb NOT NULL DEFAULT '{}',
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    CONSTRAINT names_are_bounded CHECK (octet_length(name) BETWEEN 1 AND 255),
    -- A policy that cannot be read would refuse every submit of its agent.
    CONSTRAINT policy_can_be_read CHECK (
        CASE WHEN jsonb_typeof(retry_policy) = 'object' THEN
            retry_policy - ARRAY['max_retries', 'backoff', 'on_exhausted'] = '{}'
            AND coalesce(jsonb_typeof(retry_policy -> 'max_retries'), 'number') = 'number'
            AND coalesce(retry_policy ->> 'max_retries', '0') ~ '^(\d{1,2}|100)$'
            AND coalesce(retry_policy -> 'on_exhausted', '"failed"') IN ('"failed"', '"poisoned"')
            AND CASE WHEN retry_policy ? 'backoff'
                THEN windlass_backoff_problem(retry_policy -> 'backoff') IS NULL ELSE TRUE END
        ELSE FALSE END)
);
