-- What must be known of one task to say why it does not run.
SELECT st.status, st.profile, st.queue, st.run_at, st.attempt, st.retry_count, st.max_retries,
    st.error, s.caller, st.finished_at, st.claimed_by, st.claimed_at, st.lease_expires_at,
    st.last_heartbeat_at, st.lane, st.order_key, s.portfolio, s.venture, s.stage,
    (SELECT nullif(l.agent, '') FROM lane l WHERE l.id = st.lane),
    s.llm, s.model, s.tier
FROM task_spec s
JOIN task_state st ON st.id = s.id
WHERE s.id = $1
