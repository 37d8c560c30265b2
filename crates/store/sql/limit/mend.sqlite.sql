-- What the lane $1 is counted too low, or too high, is added.
UPDATE lane SET active = active + $2, pending = pending + $3 WHERE id = CAST($1 AS INTEGER)
