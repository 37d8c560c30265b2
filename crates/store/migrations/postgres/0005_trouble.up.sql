-- What needs a person, and who is told.
--
-- A notice is what the service tells the outside by itself: written in the transaction of what it
-- speaks of, sent by a duty afterwards, at least once, under one id.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

CREATE TABLE notice (
    id uuid PRIMARY KEY,
    -- alert, approval …
    kind text NOT NULL,
    severity text NOT NULL,
    -- What it speaks of: an alert's or an approval's id.
    subject_id uuid,
    body jsonb NOT NULL,
    -- What only the receiver may see, such as a token; forgotten with the last try.
    sealed jsonb,
    created_at timestamptz NOT NULL,
    -- When the next try may begin. A try that is under way moves it on, so that nobody else tries.
    due_at timestamptz NOT NULL,
    tries integer NOT NULL DEFAULT 0,
    last_error text,
    -- Which receivers have it already; the others are still tried.
    delivered_to jsonb NOT NULL DEFAULT '[]',
    delivered_at timestamptz,
    given_up_at timestamptz,
    CONSTRAINT names_are_bounded CHECK (octet_length(kind) BETWEEN 1 AND 100),
    CONSTRAINT severity_is_known CHECK (severity IN ('critical', 'warning', 'info')),
    CONSTRAINT body_is_bounded CHECK (octet_length(body::text) <= 1048576),
    CONSTRAINT tries_are_counted CHECK (tries >= 0),
    CONSTRAINT one_end CHECK (delivered_at IS NULL OR given_up_at IS NULL),
    CONSTRAINT a_secret_ends_with_it CHECK (
        sealed IS NULL OR delivered_at IS NULL AND given_up_at IS NULL)
);
CREATE INDEX notice_due ON notice (severity, due_at)
    WHERE delivered_at IS NULL AND given_up_at IS NULL;
CREATE INDEX notice_untried ON notice (created_at)
    WHERE delivered_at IS NULL AND given_up_at IS NULL AND tries = 0;
CREATE INDEX notice_recent ON notice (created_at, id);
CREATE INDEX notice_subject ON notice (subject_id) WHERE subject_id IS NOT NULL;
