INSERT INTO schema_version (version, name, breaking, checksum, applied_at)
VALUES ($1, $2, $3, $4, $5)
