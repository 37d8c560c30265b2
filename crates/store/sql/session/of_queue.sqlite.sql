-- The sessions that are alive at $2 and name the queue $1, or the pool that is called so.
SELECT routes, slots, id, worker_type FROM session
WHERE closed_at IS NULL AND expires_at > $2
  AND (EXISTS (SELECT 1 FROM json_each(routes, '$.queues') WHERE value = $1)
       OR EXISTS (SELECT 1 FROM json_each(routes, '$.pools') WHERE value = $1))
LIMIT $3
