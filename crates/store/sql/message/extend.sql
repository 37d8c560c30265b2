-- Before an effect the lease must match and be unexpired.
UPDATE message SET lease_expires_at = $3::timestamptz
WHERE id = $1::uuid AND lease_id = $2::uuid AND status = 'delivered'
  AND lease_expires_at > $4::timestamptz
RETURNING id
