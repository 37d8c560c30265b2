-- What is held of everything: the lanes say it, each for itself.
SELECT coalesce(sum(active), 0), coalesce(sum(pending), 0) FROM lane WHERE profile <> 'ledger'
