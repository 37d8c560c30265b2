-- What is left of removed tasks.
INSERT INTO audit (at, actor, event, detail)
VALUES ($1, 'duty:remove_expired', 'retention', $2)
