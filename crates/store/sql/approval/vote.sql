-- One voice; the key allows an actor no second one.
INSERT INTO approval_vote (approval_id, task_id, actor, choice, comment, via, vote_id, at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
