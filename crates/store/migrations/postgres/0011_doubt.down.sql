DROP INDEX step_doubt;
CREATE INDEX step_doubt ON step (seq) WHERE status = 'in_doubt';
