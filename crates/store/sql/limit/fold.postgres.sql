-- What connections that are gone have counted is added up, so that a key has as many rows as there
-- are connections. Rows of living ones are left alone: nobody waits for this.
WITH gone AS (
    DELETE FROM limit_count c
    WHERE c.backend <> 0
      AND NOT EXISTS (SELECT 1 FROM pg_stat_activity a WHERE a.pid = c.backend)
    RETURNING key, active, pending
)
INSERT INTO limit_count AS c (key, backend, active, pending)
SELECT key, 0, sum(active), sum(pending) FROM gone GROUP BY key
ON CONFLICT (key, backend) DO UPDATE
SET active = c.active + excluded.active, pending = c.pending + excluded.pending
