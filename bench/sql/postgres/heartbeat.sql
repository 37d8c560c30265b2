UPDATE floor_state s
SET lease_expires_at = now() + interval '60 s', last_heartbeat_at = now(), updated_at = now()
FROM unnest($1::uuid[], $2::uuid[]) AS i (id, lease_id)
WHERE s.id = i.id AND s.lease_id = i.lease_id
