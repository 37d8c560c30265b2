-- A million finished tasks and twenty thousand living ones, as years of work leave them.
-- The triggers are off and the indexes made afterwards: this is about reading, and must be quick.
SET synchronous_commit = off;
SET maintenance_work_mem = '256MB';
CREATE TEMP TABLE kept AS
SELECT indexname, indexdef FROM pg_indexes
WHERE tablename IN ('task_spec', 'task_state', 'task_history', 'task_tag');
DO $$
DECLARE
    i record;
BEGIN
    FOR i IN SELECT indexname FROM kept WHERE indexname NOT LIKE '%_pkey' LOOP
        EXECUTE format('DROP INDEX %I', i.indexname);
    END LOOP;
    FOR i IN SELECT unnest(ARRAY['task_spec', 'task_state', 'task_history', 'task_tag',
            'task_progress']) AS name LOOP
        EXECUTE format('ALTER TABLE %I DISABLE TRIGGER USER', i.name);
        EXECUTE format('ALTER TABLE %I SET UNLOGGED', i.name);
        EXECUTE format('ALTER TABLE %I SET (autovacuum_enabled = off)', i.name);
    END LOOP;
END $$;

CREATE TEMP TABLE work AS
SELECT n, ('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid AS id,
    CASE WHEN n > 1019000 THEN 'ledger' WHEN n % 10 < 8 THEN 'job' WHEN n % 10 = 8
        THEN 'delegation' ELSE 'inference' END::task_profile AS profile,
    CASE WHEN n <= 1000000 THEN CASE n % 100 WHEN 0 THEN 'failed' WHEN 1 THEN 'cancelled'
            WHEN 2 THEN 'poisoned' WHEN 8 THEN 'stuck' ELSE 'completed' END
        WHEN n <= 1015000 OR n > 1019000 THEN 'pending' WHEN n <= 1017000 THEN 'running'
        WHEN n <= 1017500 THEN 'waiting' WHEN n <= 1018000 THEN 'retry' ELSE 'waiting'
        END::task_status AS status,
    1767225600000 + n * 10 AS created_ms,
    CASE WHEN n BETWEEN 1010001 AND 1015000 OR n BETWEEN 1017501 AND 1018000 THEN 31536000000
        ELSE 0 END AS delay_ms,
    '2026-01-01Z'::timestamptz + n * interval '10 ms' AS created_at
FROM generate_series(1, 1020000) AS n;

INSERT INTO task_spec (id, profile, name, queue, payload, tags, agent, venture, owner, caller,
    callee, pool, parent_id, replay_of, correlation_id, idempotency_key, run_at, deadline_at,
    max_retries, submitted_by, created_at)
SELECT id, profile, 'work', 'q' || n % 10, '{"n": 1}',
    CASE WHEN n % 10 IN (2, 4, 6) THEN jsonb_build_object('team', 't' || n % 7) END,
    'agent-' || n % 100, 'venture-' || n % 50, 'owner-' || n % 1000,
    CASE WHEN profile IN ('delegation', 'ledger') THEN 'caller-' || n % 100 END,
    CASE WHEN profile IN ('delegation', 'ledger') THEN 'callee-' || n % 90 END,
    CASE WHEN profile = 'inference' THEN 'fast' END,
    CASE WHEN n % 100 = 3 THEN gen_random_uuid() END,
    CASE WHEN n % 1000 = 4 THEN gen_random_uuid() END,
    CASE WHEN n % 10 = 5 THEN 'c-' || n / 100 END,
    CASE WHEN n % 10 = 1 THEN 'k-' || n END,
    created_at + delay_ms * interval '1 ms',
    CASE WHEN profile = 'delegation' THEN created_at + interval '6 hours' END, 3, 'loader',
    created_at
FROM work;

INSERT INTO lane (id, queue, profile, venture, portfolio, stage, agent) OVERRIDING SYSTEM VALUE
SELECT 1000 + n, 'q' || n, 'job', '', '', '', '' FROM generate_series(0, 9) AS n;
INSERT INTO task_state (id, profile, queue, lane, status, from_status, event, change_id, actor,
    ready, order_key, run_at, deadline_at, attempt, max_retries, lease_id, lease_expires_at,
    claim_id,
    claimed_by, result, error, created_at, entered_at, updated_at)
SELECT id, profile, 'q' || n % 10, 1000 + n % 10, status,
    CASE status WHEN 'pending' THEN NULL WHEN 'running' THEN 'pending' ELSE 'running'
        END::task_status,
    CASE status WHEN 'completed' THEN 'complete' WHEN 'pending' THEN 'submit'
        WHEN 'running' THEN 'claim' WHEN 'waiting' THEN 'wait' WHEN 'cancelled' THEN 'cancel'
        WHEN 'stuck' THEN 'lose_lease' ELSE 'fail' END::task_event,
    id, 'loader', n BETWEEN 1000001 AND 1010000, created_ms + delay_ms,
    created_at + delay_ms * interval '1 ms',
    CASE WHEN profile = 'delegation' THEN created_at + interval '6 hours' END, 1, 3,
    CASE WHEN status = 'running' THEN id END,
    CASE WHEN status = 'running' THEN created_at + interval '1 hour' END,
    CASE WHEN status = 'running' OR n <= 1000000 THEN id END,
    CASE WHEN status = 'running' OR n <= 1000000 THEN 'w' || n % 50 END,
    CASE WHEN status = 'completed' THEN '{}'::jsonb END,
    CASE WHEN status IN ('failed', 'poisoned', 'stuck') THEN '{"code": "X"}'::jsonb END,
    created_at, created_at, created_at + interval '1 second'
FROM work;

-- A transaction each, as years of work leave them.
INSERT INTO task_history (xid, task_id, change_id, from_status, to_status, event, actor, lease_id,
    at)
SELECT row_number() OVER (ORDER BY id), id, change_id, from_status, status, event, actor, lease_id,
    updated_at
FROM task_state;
INSERT INTO task_progress (task_id, checkpoint, updated_at)
SELECT id, '1', created_at FROM work WHERE n % 20 = 0;
INSERT INTO task_tag (key, value, created_at, task_id)
SELECT 'team', tags ->> 'team', created_at, id FROM task_spec WHERE tags IS NOT NULL;
-- Most were taken by tasks that have ended; a few came early.
INSERT INTO signal (id, name, task_id, payload, request_digest, sent_by, created_at, taken_by,
    taken_at)
SELECT id, 'go', id, '1', '', 'loader', created_at, id, created_at FROM work WHERE n <= 20000;
INSERT INTO signal (id, name, key, payload, request_digest, sent_by, created_at)
SELECT id, 'go', 'key-' || n, '1', '', 'loader', created_at FROM work
WHERE n BETWEEN 20001 AND 30000;

DO $$
DECLARE
    i record;
BEGIN
    FOR i IN SELECT indexdef FROM kept WHERE indexname NOT LIKE '%_pkey' LOOP
        EXECUTE i.indexdef;
    END LOOP;
    FOR i IN SELECT unnest(ARRAY['task_spec', 'task_state', 'task_history', 'task_tag',
            'task_progress']) AS name LOOP
        EXECUTE format('ALTER TABLE %I ENABLE TRIGGER USER', i.name);
    END LOOP;
END $$;
