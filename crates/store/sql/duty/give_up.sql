DELETE FROM duty WHERE node = $1::uuid
