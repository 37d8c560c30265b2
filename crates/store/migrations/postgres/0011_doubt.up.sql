-- What an ended task left begun, or failed with an effect nobody knows, waits for a person too.
-- The index holds as well what living tasks are at: as many rows as there are of them at most.
DROP INDEX step_doubt;
CREATE INDEX step_doubt ON step (seq)
    WHERE NOT idempotent AND (status = 'in_doubt' OR status = 'begun'
        OR status = 'failed' AND coalesce(effect, 'unknown') <> 'none');
