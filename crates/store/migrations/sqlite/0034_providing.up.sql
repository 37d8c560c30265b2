-- Sessions that provide for pools; migrations/postgres/0034_providing.up.sql says more.
CREATE INDEX session_providing ON session (created_at) WHERE routes -> 'pools' <> '[]';
