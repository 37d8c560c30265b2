-- Whether somebody is there to read it.
SELECT name FROM agent WHERE name = $1::text
