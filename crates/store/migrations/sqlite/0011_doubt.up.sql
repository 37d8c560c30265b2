-- What ended tasks left behind waits for a person too; migrations/postgres/0011_doubt.up.sql says
-- more.
DROP INDEX step_doubt;
CREATE INDEX step_doubt ON step (seq)
    WHERE NOT idempotent AND (status = 'in_doubt' OR status = 'begun'
        OR status = 'failed' AND coalesce(effect, 'unknown') <> 'none');
