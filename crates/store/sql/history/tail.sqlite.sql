-- All transitions after a position, in commit order: there is one writer. $1 is for PostgreSQL.
SELECT task_id, seq, from_status, to_status, event, actor, reason, lease_id, metadata, at, 0
FROM task_history
WHERE seq > $2
ORDER BY seq
LIMIT $3
