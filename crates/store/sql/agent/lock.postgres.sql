-- One change of the registry after the other: two that are harmless alone can make a circle
-- together, or a venture twice.
SELECT windlass_lock_agents() IS NULL
