DELETE FROM limit_rule WHERE scope = $1::text AND name = $2::text
