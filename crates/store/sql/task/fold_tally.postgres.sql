-- Adds what came since to the tally, at most $1 events, below the oldest running transaction, and
-- moves the position. Returns whether there may be more.
WITH position AS MATERIALIZED (
    SELECT xid, seq FROM task_tally_position FOR UPDATE
), fresh AS MATERIALIZED (
    SELECT xid, seq, to_status FROM task_history
    WHERE (xid, seq) > ((SELECT xid FROM position), (SELECT seq FROM position))
      AND xid < windlass_horizon()
    ORDER BY xid, seq
    LIMIT $1::bigint
), added AS (
    INSERT INTO task_tally AS t (status, ended)
    SELECT to_status, count(*) FROM fresh WHERE to_status IN ({terminal}) GROUP BY to_status
    ON CONFLICT (status) DO UPDATE SET ended = t.ended + excluded.ended
), moved AS (
    UPDATE task_tally_position
    SET (xid, seq) = (SELECT xid, seq FROM fresh ORDER BY xid DESC, seq DESC LIMIT 1)
    WHERE EXISTS (SELECT 1 FROM fresh)
)
SELECT count(*) = $1::bigint FROM fresh
