-- The deltas of about a tenth of a second. The same chunk again is the same chunk; where a provider
-- went on at another node, which cuts the same text differently, the longer one stays.
INSERT INTO delta_chunk (task_id, attempt, from_index, deltas)
VALUES ($1::uuid, $2::int, $3::bigint, $4::text)
ON CONFLICT (task_id, attempt, from_index) DO UPDATE SET deltas = excluded.deltas
WHERE length(excluded.deltas) > length(delta_chunk.deltas)
