-- The sessions that are alive at $2 and name the queue $1, or the pool that is called so.
SELECT routes, slots, id, worker_type FROM session
WHERE closed_at IS NULL AND expires_at > $2::timestamptz
  AND (routes -> 'queues' @> to_jsonb($1::text) OR routes -> 'pools' @> to_jsonb($1::text))
LIMIT $3::bigint
