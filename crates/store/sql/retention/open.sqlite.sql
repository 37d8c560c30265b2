-- Deleting is open until the same transaction closes it. For how long tasks are kept is not told:
-- the triggers that would ask do not run for the writer.
INSERT INTO retention_gate (open) VALUES (1)
