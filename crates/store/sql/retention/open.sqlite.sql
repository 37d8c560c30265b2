-- Deleting is open until the same transaction closes it.
INSERT INTO retention_gate (open) VALUES (1)
