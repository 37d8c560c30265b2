DELETE FROM retention_gate
