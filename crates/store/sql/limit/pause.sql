SELECT scope, name, mode, reason, since, by FROM pause
WHERE scope = $1::text AND name = $2::text
