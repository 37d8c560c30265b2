-- How many pending tasks the keys $1 hold together, of none of which anything may begin.
SELECT coalesce(sum(pending), 0) FROM lane
WHERE profile <> 'ledger' AND (
    'queue:' || queue IN (SELECT value FROM json_each($1))
    OR 'venture:' || venture IN (SELECT value FROM json_each($1))
    OR 'agent:' || agent IN (SELECT value FROM json_each($1))
    OR 'stage:' || stage IN (SELECT value FROM json_each($1))
    OR 'portfolio:' || portfolio IN (SELECT value FROM json_each($1)))
