-- Everything up to here has been cleared; $1 is for PostgreSQL.
UPDATE step_expiry_position SET seq = $2 WHERE $1 >= 0
