SELECT version FROM limit_version
