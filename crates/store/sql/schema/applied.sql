SELECT version, name, breaking, checksum, applied_at FROM schema_version ORDER BY version
