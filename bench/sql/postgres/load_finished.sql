-- {count} finished tasks as they would lie there: with their history, counted, and older than
-- anything else. Run with triggers off.
WITH made AS (
    SELECT (lpad(to_hex((extract(epoch FROM t) * 1000)::bigint), 12, '0') || '7'
            || substr(replace(gen_random_uuid()::text, '-', ''), 14))::uuid AS id, t
    FROM (SELECT now() - interval '2 days' + n * interval '1 ms' AS t
          FROM generate_series(1, {count}) AS n) AS times
), spec AS (
    INSERT INTO task_spec (id, profile, queue, payload, request_digest, run_at, max_retries,
        submitted_by, created_at)
    SELECT id, 'job', 'bench', jsonb_build_object('text', repeat('x', 185)),
        repeat('0', 64), t, 3, 'bench', t
    FROM made
), state AS (
    INSERT INTO task_state (id, profile, queue, status, from_status, event, change_id, actor,
        ready, order_key, run_at, attempt, max_retries, claimed_by, claimed_at, claim_id, result,
        created_at, started_at, entered_at, updated_at)
    SELECT id, 'job', 'bench', 'completed', 'running', 'complete', gen_random_uuid(), 'bench',
        false, (extract(epoch FROM t) * 1000)::bigint, t, 1, 3, 'bench', t, gen_random_uuid(),
        '{"ok": true}', t, t, t, t
    FROM made
)
INSERT INTO task_history (xid, task_id, change_id, from_status, to_status, event, actor, lease_id,
    at)
SELECT windlass_xid(), id, gen_random_uuid(), step.f::task_status, step.s::task_status,
    step.e::task_event,
    'bench', gen_random_uuid(), t
FROM made, (VALUES (NULL, 'pending', 'submit'), ('pending', 'running', 'claim'),
    ('running', 'completed', 'complete')) AS step (f, s, e);
INSERT INTO task_tally (status, ended) VALUES ('completed', {count});
UPDATE task_tally_position
SET (xid, seq) = (SELECT xid, seq FROM task_history ORDER BY xid DESC, seq DESC LIMIT 1);
