-- One change of the tree after the other: two that are harmless alone can make a circle together.
SELECT windlass_lock_agents() IS NULL
