-- What lies in inboxes and since when, what handlers hold, and which dead letters need a person: as
-- many entries of partial indexes as there are of them, and nothing of what has ended.
SELECT 'pending', count(*), min(m.created_at) FROM message m WHERE m.status = 'pending'
UNION ALL
SELECT 'delivered', count(*), NULL FROM message m WHERE m.status = 'delivered'
UNION ALL
SELECT 'dead_lettered', count(*), NULL FROM dead_letter d WHERE d.closed_at IS NULL
