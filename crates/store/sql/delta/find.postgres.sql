-- Where the deltas of these tasks are, unless the attempt is an old one.
SELECT d.task_id, d.attempt, d.node_id, n.url, d.total
FROM delta_source d JOIN task_state s ON s.id = d.task_id AND s.attempt = d.attempt
LEFT JOIN node n ON n.id = d.node_id AND n.expires_at > $2
WHERE d.task_id = ANY ($1::uuid[])
