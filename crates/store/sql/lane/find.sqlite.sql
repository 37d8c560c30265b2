-- The lane of these names, made if it is missing.
INSERT INTO lane (queue, profile, venture, portfolio, stage, agent)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (queue, profile, venture, portfolio, stage, agent) DO UPDATE SET active = active
RETURNING id, queue, profile, venture, portfolio, stage, agent
