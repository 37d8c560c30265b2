-- Where the deltas of these tasks are, unless the attempt is an old one, and
-- whether it goes on.
SELECT d.task_id, d.attempt, d.node_id, n.url, d.total,
    (CASE WHEN s.status IN ({held}) THEN 1 ELSE 0 END)
FROM delta_source d JOIN task_state s ON s.id = d.task_id AND s.attempt = d.attempt
LEFT JOIN node n ON n.id = d.node_id AND n.expires_at > $2
WHERE d.task_id IN (SELECT value FROM json_each($1))
