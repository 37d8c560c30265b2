-- What holds anything now.
SELECT key, active, pending FROM limit_use WHERE active <> 0 OR pending <> 0
