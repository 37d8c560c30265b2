-- What the key $1 is counted too low, or too high, is added to what no connection counts. Others
-- only add what they change, so it does not matter what they have added meanwhile.
INSERT INTO limit_count AS c (key, backend, active, pending)
VALUES ($1::text, 0, $2::bigint, $3::bigint)
ON CONFLICT (key, backend) DO UPDATE
SET active = c.active + excluded.active, pending = c.pending + excluded.pending
