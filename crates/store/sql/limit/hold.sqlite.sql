-- What is held of the keys $2. There is one writer, so its transaction is the lock $1.
WITH wanted AS (
    SELECT value AS key, substr(value, 1, instr(value, ':') - 1) AS scope,
        substr(value, instr(value, ':') + 1) AS name
    FROM json_each($2)
    WHERE $1 > 0
), held AS (
    SELECT w.key, sum(l.active) AS active, sum(l.pending) AS pending
    FROM wanted w CROSS JOIN lane l
    WHERE w.scope = 'global' AND l.profile <> 'ledger'
    UNION ALL
    SELECT w.key, sum(l.active), sum(l.pending)
    FROM wanted w CROSS JOIN lane l
    WHERE w.scope = 'portfolio' AND l.portfolio = w.name AND l.portfolio <> ''
      AND l.profile <> 'ledger'
    GROUP BY w.key
    UNION ALL
    SELECT w.key, sum(l.active), sum(l.pending)
    FROM wanted w CROSS JOIN lane l
    WHERE w.scope = 'venture' AND l.venture = w.name AND l.venture <> ''
      AND l.profile <> 'ledger'
    GROUP BY w.key
    UNION ALL
    SELECT w.key, sum(l.active), sum(l.pending)
    FROM wanted w CROSS JOIN lane l
    WHERE w.scope = 'stage' AND l.stage = w.name AND l.stage <> '' AND l.profile <> 'ledger'
    GROUP BY w.key
    UNION ALL
    SELECT w.key, sum(l.active), sum(l.pending)
    FROM wanted w CROSS JOIN lane l
    WHERE w.scope = 'agent' AND l.agent = w.name AND l.agent <> '' AND l.profile <> 'ledger'
    GROUP BY w.key
    UNION ALL
    SELECT w.key, sum(l.active), sum(l.pending)
    FROM wanted w CROSS JOIN lane l
    WHERE w.scope = 'queue' AND l.queue = w.name AND l.profile <> 'ledger'
    GROUP BY w.key
)
SELECT w.key, coalesce(h.active, 0), coalesce(h.pending, 0), r.began_at, r.taken
FROM wanted w
LEFT JOIN held h ON h.key = w.key
LEFT JOIN limit_rate r ON r.key = w.key
