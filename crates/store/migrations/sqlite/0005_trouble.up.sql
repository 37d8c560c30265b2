-- What needs a person, and who is told; migrations/postgres/0005_trouble.up.sql says more.

CREATE TABLE notice (
    id TEXT PRIMARY KEY NOT NULL CHECK (length(id) = 36),
    kind TEXT NOT NULL,
    severity TEXT NOT NULL,
    subject_id TEXT,
    body TEXT NOT NULL CHECK (json_valid(body)),
    sealed TEXT CHECK (sealed IS NULL OR json_valid(sealed)),
    created_at INTEGER NOT NULL,
    due_at INTEGER NOT NULL,
    tries INTEGER NOT NULL DEFAULT 0,
    last_error TEXT,
    delivered_to TEXT NOT NULL DEFAULT '[]' CHECK (json_valid(delivered_to)),
    delivered_at INTEGER,
    given_up_at INTEGER,
    CONSTRAINT names_are_bounded CHECK (length(CAST(kind AS BLOB)) BETWEEN 1 AND 100),
    CONSTRAINT severity_is_known CHECK (
        severity = 'critical' OR severity = 'warning' OR severity = 'info'),
    CONSTRAINT body_is_bounded CHECK (length(CAST(body AS BLOB)) <= 1048576),
    CONSTRAINT tries_are_counted CHECK (tries >= 0),
    CONSTRAINT one_end CHECK (delivered_at IS NULL OR given_up_at IS NULL),
    CONSTRAINT a_secret_ends_with_it CHECK (
        sealed IS NULL OR delivered_at IS NULL AND given_up_at IS NULL)
) STRICT, WITHOUT ROWID;
CREATE INDEX notice_due ON notice (severity, due_at)
    WHERE delivered_at IS NULL AND given_up_at IS NULL;
CREATE INDEX notice_untried ON notice (created_at)
    WHERE delivered_at IS NULL AND given_up_at IS NULL AND tries = 0;
CREATE INDEX notice_recent ON notice (created_at, id);
CREATE INDEX notice_subject ON notice (subject_id) WHERE subject_id IS NOT NULL;
