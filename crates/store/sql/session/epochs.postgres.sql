-- Which of these sessions are open, and the epoch of each one's stream. It renews none.
SELECT id, stream_epoch FROM session
WHERE id = ANY ($1) AND closed_at IS NULL
