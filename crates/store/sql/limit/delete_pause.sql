DELETE FROM pause WHERE scope = $1::text AND name = $2::text
