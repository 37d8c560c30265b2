-- The lane of these names, made if it is missing.
INSERT INTO lane (queue, profile, venture, portfolio, stage, agent, llm, model, tier)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
ON CONFLICT (queue, profile, venture, portfolio, stage, agent, llm, model, tier)
DO UPDATE SET active = active
RETURNING id, queue, profile, venture, portfolio, stage, agent, llm, model, tier
