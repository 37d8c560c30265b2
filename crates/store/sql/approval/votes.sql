-- Who said what, in order.
SELECT actor, choice, comment, via, vote_id, at FROM approval_vote
WHERE approval_id = $1
ORDER BY at, actor
