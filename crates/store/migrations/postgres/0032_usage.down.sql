DROP VIEW task;
ALTER TABLE task_state DROP COLUMN usage;
CREATE VIEW task AS
SELECT s.id,
       CASE s.profile WHEN 'ledger' THEN 'delegation' ELSE s.profile::text END AS kind,
       CASE s.profile WHEN 'ledger' THEN 'ledger' ELSE 'executed' END AS mode,
       s.name, s.queue, st.status, s.payload, st.result, st.error,
       p.checkpoint, p.progress, s.priority, s.tags, s.agent, s.venture, s.portfolio, s.stage,
       s.owner, s.caller, s.callee, s.pool, s.llm, s.model, s.tier, s.parent_id, s.replay_of,
       (SELECT count(*) FROM task_spec r WHERE r.replay_of = s.id) AS replay_count,
       s.correlation_id, s.idempotency_key, st.attempt, st.retry_count, st.max_retries,
       st.release_count, st.run_at, st.deadline_at, st.claimed_by, st.claimed_at,
       st.lease_expires_at, st.last_heartbeat_at, st.stream_started_at, s.created_at,
       st.started_at, st.updated_at, st.finished_at
FROM task_spec s
JOIN task_state st ON st.id = s.id
LEFT JOIN task_progress p ON p.task_id = s.id;

CREATE TRIGGER task_is_read_only INSTEAD OF INSERT OR UPDATE OR DELETE ON task FOR EACH ROW
    EXECUTE FUNCTION windlass_refuse('it is a view of task_spec, task_state and task_progress');
