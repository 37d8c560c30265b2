-- What somebody did, or tried, that no task's history tells.
INSERT INTO audit (at, actor, event, detail) VALUES ($1, $2, $3, $4)
