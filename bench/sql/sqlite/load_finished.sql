-- {count} finished tasks as they would lie there: with their history, counted, and older than
-- anything else. Run with triggers off. A
-- temporary table, because one statement of SQLite writes one table.
CREATE TEMP TABLE made AS
WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {count})
SELECT t, substr(ms, 1, 8) || '-' || substr(ms, 9, 4) || '-7' || substr(r, 1, 3) || '-8'
    || substr(r, 4, 3) || '-' || substr(r, 7, 12) AS id
FROM (SELECT 1769860800000 + n AS t, printf('%012x', 1769860800000 + n) AS ms,
             lower(hex(randomblob(9))) AS r FROM n);
INSERT INTO task_spec (id, profile, queue, payload, request_digest, run_at, max_retries,
    submitted_by, created_at)
SELECT id, 'job', 'bench', '{"text":"' || printf('%.185c', 'x') || '"}', printf('%.64c', '0'),
    t, 3, 'bench', t
FROM made;
INSERT INTO task_state (id, profile, queue, status, from_status, event, change_id, actor, ready,
    order_key, run_at, attempt, max_retries, claimed_by, claimed_at, claim_id, result, created_at,
    started_at, entered_at, updated_at)
SELECT id, 'job', 'bench', 'completed', 'running', 'complete', id, 'bench', 0, t, t, 1, 3,
    'bench', t, id, '{"ok":true}', t, t, t, t
FROM made;
INSERT INTO task_history (task_id, change_id, from_status, to_status, event, actor, lease_id, at)
SELECT id, id, NULL, 'pending', 'submit', 'bench', NULL, t FROM made;
INSERT INTO task_history (task_id, change_id, from_status, to_status, event, actor, lease_id, at)
SELECT id, id, 'pending', 'running', 'claim', 'bench', id, t FROM made;
INSERT INTO task_history (task_id, change_id, from_status, to_status, event, actor, lease_id, at)
SELECT id, id, 'running', 'completed', 'complete', 'bench', id, t FROM made;
INSERT INTO task_tally (status, ended) VALUES ('completed', {count});
UPDATE task_tally_position SET seq = (SELECT max(seq) FROM task_history);
DROP TABLE made;
