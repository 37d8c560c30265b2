DELETE FROM schema_version WHERE version = $1
