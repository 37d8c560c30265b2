-- Every node keeps the rules and pauses in memory. It reads one number to know whether they are
-- still the same, whoever changed them.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- One row. Whoever changes rules or pauses holds it until the commit, so that changes come one
-- after the other, and a reader who sees a number sees all that it stands for.
CREATE TABLE limit_version (
    single boolean PRIMARY KEY DEFAULT TRUE CHECK (single),
    version bigint NOT NULL
);
INSERT INTO limit_version (version) VALUES (1);

CREATE FUNCTION windlass_limits_changed() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE limit_version SET version = version + 1;
    RETURN NULL;
END $$;
CREATE TRIGGER limit_rule_is_told AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON limit_rule
    FOR EACH STATEMENT EXECUTE FUNCTION windlass_limits_changed();
CREATE TRIGGER pause_is_told AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON pause
    FOR EACH STATEMENT EXECUTE FUNCTION windlass_limits_changed();
