-- The lanes of these names, made where they are missing. Two who make the same one at the same time
-- make two, which hurts nobody: nothing waits for a transaction that somebody keeps open.
WITH wanted AS MATERIALIZED (
    SELECT DISTINCT * FROM unnest(
        $1::text[], $2::task_profile[], $3::text[], $4::text[], $5::text[], $6::text[],
        $7::text[], $8::text[], $9::text[]
    ) AS w (queue, profile, venture, portfolio, stage, agent, llm, model, tier)
), known AS MATERIALIZED (
    SELECT min(l.id) AS id, queue, profile, venture, portfolio, stage, agent, llm, model, tier
    FROM wanted
    JOIN lane l USING (queue, profile, venture, portfolio, stage, agent, llm, model, tier)
    GROUP BY queue, profile, venture, portfolio, stage, agent, llm, model, tier
), made AS (
    INSERT INTO lane (queue, profile, venture, portfolio, stage, agent, llm, model, tier)
    SELECT * FROM wanted w
    WHERE NOT EXISTS (
        SELECT 1 FROM known k
        WHERE (k.queue, k.profile, k.venture, k.portfolio, k.stage, k.agent)
            = (w.queue, w.profile, w.venture, w.portfolio, w.stage, w.agent)
          AND (k.llm, k.model, k.tier) = (w.llm, w.model, w.tier))
    RETURNING id, queue, profile, venture, portfolio, stage, agent, llm, model, tier
)
SELECT * FROM known UNION ALL SELECT * FROM made
