-- The number that a replay's copies share. A step that begins takes its own as it is written.
SELECT {next_run}
