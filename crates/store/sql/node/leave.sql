DELETE FROM node WHERE id = $1::uuid OR expires_at < $2::timestamptz
