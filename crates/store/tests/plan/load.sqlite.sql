-- A million finished tasks and twenty thousand living ones, as years of work leave them.
-- The test takes the triggers and indexes away before and puts them back afterwards.
INSERT INTO task_spec (id, profile, name, queue, payload, tags, agent, venture, owner, caller,
    callee, pool, parent_id, replay_of, correlation_id, idempotency_key, run_at, deadline_at,
    max_retries, submitted_by, created_at)
WITH RECURSIVE number (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < 1020000)
SELECT printf('00000000-0000-7000-8000-%012x', n),
    CASE WHEN n > 1019000 THEN 'ledger' WHEN n % 10 < 8 THEN 'job' WHEN n % 10 = 8
        THEN 'delegation' ELSE 'inference' END,
    'work', 'q' || n % 10, '{"n":1}',
    CASE WHEN n % 10 IN (2, 4, 6) THEN json_object('team', 't' || n % 7) END,
    'agent-' || n % 100, 'venture-' || n % 50, 'owner-' || n % 1000,
    CASE WHEN n % 10 = 8 OR n > 1019000 THEN 'caller-' || n % 100 END,
    CASE WHEN n % 10 = 8 OR n > 1019000 THEN 'callee-' || n % 90 END,
    CASE WHEN n % 10 = 9 AND n <= 1019000 THEN 'fast' END,
    CASE WHEN n % 100 = 3 THEN printf('00000000-0000-7000-8000-%012x', n - 1) END,
    CASE WHEN n % 1000 = 4 THEN printf('00000000-0000-7000-8000-%012x', n - 1) END,
    CASE WHEN n % 10 = 5 THEN 'c-' || n / 100 END,
    CASE WHEN n % 10 = 1 THEN 'k-' || n END,
    1767225600000 + n * 10 + CASE WHEN n BETWEEN 1010001 AND 1015000
        OR n BETWEEN 1017501 AND 1018000 THEN 31536000000 ELSE 0 END,
    CASE WHEN n % 10 = 8 THEN 1767225600000 + n * 10 + 21600000 END, 3, 'loader',
    1767225600000 + n * 10
FROM number;

INSERT INTO lane (id, queue, profile, venture, portfolio, stage, agent)
WITH RECURSIVE ten (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM ten WHERE n < 9)
SELECT 1000 + n, 'q' || n, 'job', '', '', '', '' FROM ten;
INSERT INTO task_state (id, profile, queue, lane, status, from_status, event, change_id, actor,
    ready, order_key, run_at, deadline_at, attempt, max_retries, lease_id, lease_expires_at,
    claim_id,
    claimed_by, result, error, created_at, entered_at, updated_at)
WITH numbered (id, n) AS (
    SELECT id, row_number() OVER (ORDER BY created_at, id) FROM task_spec
), kind (id, n, status) AS (
    SELECT id, n, CASE
        WHEN n <= 1000000 THEN CASE n % 100 WHEN 0 THEN 'failed' WHEN 1 THEN 'cancelled'
            WHEN 2 THEN 'poisoned' WHEN 8 THEN 'stuck' ELSE 'completed' END
        WHEN n <= 1015000 OR n > 1019000 THEN 'pending'
        WHEN n <= 1017000 THEN 'running' WHEN n <= 1017500 THEN 'waiting'
        WHEN n <= 1018000 THEN 'retry' ELSE 'waiting' END
    FROM numbered)
SELECT s.id, s.profile, s.queue, 1000 + n % 10, k.status,
    CASE k.status WHEN 'pending' THEN NULL WHEN 'running' THEN 'pending' ELSE 'running' END,
    CASE k.status WHEN 'pending' THEN 'submit' WHEN 'running' THEN 'claim' WHEN 'waiting'
        THEN 'wait' WHEN 'cancelled' THEN 'cancel' WHEN 'stuck' THEN 'lose_lease'
        WHEN 'completed' THEN 'complete' ELSE 'fail' END,
    s.id, 'loader', n BETWEEN 1000001 AND 1010000, s.run_at, s.run_at, s.deadline_at, 1, 3,
    CASE WHEN k.status = 'running' THEN s.id END,
    CASE WHEN k.status = 'running' THEN s.created_at + 3600000 END,
    CASE WHEN k.status = 'running' OR n <= 1000000 THEN s.id END,
    CASE WHEN k.status = 'running' OR n <= 1000000 THEN 'w' || n % 50 END,
    CASE WHEN k.status = 'completed' THEN '{}' END,
    CASE WHEN k.status IN ('failed', 'poisoned', 'stuck') THEN '{"code":"X"}' END,
    s.created_at, s.created_at, s.created_at + 1000
FROM kind k JOIN task_spec s ON s.id = k.id;

INSERT INTO task_history (task_id, change_id, from_status, to_status, event, actor, lease_id, at)
SELECT id, change_id, from_status, status, event, actor, lease_id, updated_at FROM task_state;
INSERT INTO task_progress (task_id, checkpoint, updated_at)
SELECT id, '1', created_at FROM task_spec WHERE abs(created_at) % 20 = 0;
INSERT INTO task_tag (key, value, created_at, task_id)
SELECT 'team', tags ->> 'team', created_at, id FROM task_spec WHERE tags IS NOT NULL;
INSERT INTO signal (id, name, task_id, payload, request_digest, sent_by, created_at, taken_by,
    taken_at)
SELECT id, 'go', id, '1', '', 'loader', created_at, id, created_at FROM task_spec LIMIT 20000;
