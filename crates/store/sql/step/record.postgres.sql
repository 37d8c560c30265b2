-- Records steps that are done. Guarded by the lease: matching suffices, because what was done
-- before the lease was lost hurts nobody until somebody else has it. The lock on the task keeps it
-- from being taken over meanwhile: whoever takes it then sees the step.
WITH locked AS MATERIALIZED (
    SELECT id, lease_id, attempt FROM task_state
    WHERE id = ANY ($2::uuid[]) AND status = 'running' ORDER BY id FOR SHARE
), clock AS MATERIALIZED (
    SELECT coalesce($1::timestamptz, date_trunc('milliseconds', clock_timestamp())) AS now
    FROM (SELECT count(*) FROM locked) AS waited
)
INSERT INTO step (task_id, id, name, type, inputs_hash, occurrence, idempotent, status, result,
    lease_id, attempt, actor, created_at, ended_at)
SELECT t.id, i.id, i.name, i.type, i.inputs_hash, i.occurrence, true, 'done', i.result,
    t.lease_id, t.attempt, i.actor, clock.now, clock.now
FROM clock, unnest($2::uuid[], $3::uuid[], $4::uuid[], $5::text[], $6::text[], $7::text[],
        $8::int[], $9::jsonb[], $10::text[])
    WITH ORDINALITY
    AS i (task_id, lease_id, id, name, type, inputs_hash, occurrence, result, actor, nth)
JOIN locked t ON t.id = i.task_id AND t.lease_id = i.lease_id
ORDER BY i.nth
ON CONFLICT (task_id, id) DO NOTHING
RETURNING id
