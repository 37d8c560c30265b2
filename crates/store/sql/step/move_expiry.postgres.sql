-- Everything up to here has been cleared.
UPDATE step_expiry_position SET xid = $1, seq = $2
